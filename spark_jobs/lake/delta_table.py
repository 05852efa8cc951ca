"""A Delta table of ours as Spark sees it: its columns, and its creation or replacement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from spark_jobs.lake.merge_sql import TABLE_PROPERTIES, delta_identifier, quoted
from spark_jobs.schema.column_changes import DeltaColumn
from spark_jobs.schema.mode_columns import mode_columns
from spark_jobs.schema.table_shape import LakeColumn
from spark_jobs.table_mode import Mode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# in the metadata of each column of the Delta schema: a name may come to mean another column, a number never does
_ATTNUM = "pg_attribute.attnum"
_MODE = "postgres_cdc.mode"  # of a column that the source does not have


def table_columns(spark: SparkSession, path: str) -> tuple[DeltaColumn, ...]:
    """The columns of the table at ``path`` that the source has too, in its order."""
    schema = spark.read.format("delta").load(path).schema
    return tuple(
        DeltaColumn(field.name, field.dataType.simpleString(), field.metadata.get(_ATTNUM))
        for field in schema
        if _MODE not in field.metadata
    )


def with_attribute_numbers(frame: DataFrame, columns: Sequence[LakeColumn], mode: Mode = "mirror") -> DataFrame:
    """``frame``, which has these columns and those of the mode, as a table that remembers their attribute numbers."""
    from pyspark.sql import functions

    described: list[tuple[str, dict[str, int | str]]] = [(column.name, {_ATTNUM: column.attnum}) for column in columns]
    described += [(column.name, {_MODE: mode}) for column in mode_columns(mode)]
    return frame.select(*(functions.col(quoted(name)).alias(name, metadata=known) for name, known in described))


def replace_table(frame: DataFrame, path: str) -> None:
    """Make the table at ``path`` hold exactly ``frame``, columns and rows, in one commit; create it if it is not there.

    The session of ``frame`` says who commits. Properties of a table that is there stay as they are.
    """
    writer = frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    for key, value in TABLE_PROPERTIES:
        writer = writer.option(key, value)
    writer.save(path)


def rows_written(spark: SparkSession, path: str) -> int:
    """How many rows the newest commit wrote, by its own metrics."""
    newest = spark.sql(f"DESCRIBE HISTORY {delta_identifier(path)} LIMIT 1").collect()[0]
    return int(newest["operationMetrics"].get("numOutputRows", 0))
