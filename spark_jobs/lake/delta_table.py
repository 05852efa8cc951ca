"""A Delta table of ours as Spark sees it: its columns against the source's, and its creation or replacement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from spark_jobs.errors import SchemaChangeError
from spark_jobs.lake.merge_sql import TABLE_PROPERTIES, delta_identifier, quoted
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.schema.table_shape import LakeColumn, TableShape

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# in the metadata of each column of the Delta schema: a name may come to mean another column, a number never does
_ATTNUM = "pg_attribute.attnum"


def table_columns(spark: SparkSession, path: str) -> dict[str, tuple[str, int | None]]:
    """Name, SQL type and attribute number of each column."""
    schema = spark.read.format("delta").load(path).schema
    return {field.name: (field.dataType.simpleString(), field.metadata.get(_ATTNUM)) for field in schema}


def with_attribute_numbers(frame: DataFrame, columns: Sequence[LakeColumn]) -> DataFrame:
    """``frame``, which has these columns, as a table that remembers their attribute numbers."""
    from pyspark.sql import functions

    return frame.select(*(functions.col(quoted(c.name)).alias(c.name, metadata={_ATTNUM: c.attnum}) for c in columns))


def check_columns(spark: SparkSession, path: str, shape: TableShape, lsn: Lsn) -> None:
    """Raise SchemaChangeError when the source's columns at ``lsn`` are not the table's: by name, type and number."""
    found = table_columns(spark, path)
    lake = {name: sql for name, (sql, _) in found.items()}
    source = {column.name: column.lake_type.sql for column in shape.columns}
    others = [
        f"{column.name} is another column of that name"
        for column in shape.columns
        if column.name in found and found[column.name][1] not in (None, column.attnum)
    ]
    if lake == source and not others:
        return
    differences = [f"{name} {source[name]} is new" for name in source if name not in lake]
    differences += [f"{name} is gone" for name in lake if name not in source]
    differences += [
        f"{name} was {lake[name]} and is {source[name]}" for name in lake if source.get(name, lake[name]) != lake[name]
    ]
    raise SchemaChangeError(
        f"{shape.name} has other columns from {lsn} on: {'; '.join([*differences, *others])}",
        hint=f"take a new snapshot of this table: postgres-cdc snapshot '{shape.name}'",
    )


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
