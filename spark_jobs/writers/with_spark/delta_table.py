"""A Delta table of ours as Spark sees it: its columns, its properties, and its creation or replacement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from spark_jobs.delta.table import delta_identifier
from spark_jobs.delta.transaction_log import TransactionLog
from spark_jobs.options.table_layout import NO_LAYOUT, TableLayout
from spark_jobs.options.table_mode import MIRROR, Form
from spark_jobs.schema.annotations import TableAnnotations
from spark_jobs.schema.column_changes import DeltaColumn
from spark_jobs.schema.mode_columns import own_columns
from spark_jobs.schema.table_shape import LakeColumn
from spark_jobs.spark.errors import is_file_gone
from spark_jobs.spark.session import isolated_session
from spark_jobs.storage import Location
from spark_jobs.writers.delta_fields import ATTNUM, MODE, Metadata, annotated, said_in
from spark_jobs.writers.merge_sql import quoted, sql_text
from spark_jobs.writers.table_features import Feature, features_of, new_properties

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def table_columns(spark: SparkSession, path: str, version: int | None = None) -> tuple[DeltaColumn, ...]:
    """The columns that the table at ``path`` has from the source, in the table's order, as of ``version`` or its newest
    one."""
    return tuple(
        DeltaColumn(field.name, field.dataType.simpleString(), field.metadata.get(ATTNUM))
        for field in table_at(spark, path, version).schema
        if MODE not in field.metadata
    )


def column_numbers(spark: SparkSession, path: str) -> frozenset[int]:
    """The attribute numbers of the columns that the table at ``path`` has from the source, as far as they are known."""
    return frozenset(column.attnum for column in table_columns(spark, path) if column.attnum is not None)


def table_at(spark: SparkSession, path: str, version: int | None = None) -> DataFrame:
    """The table's rows, as of ``version`` or its newest one."""
    reader = spark.read.format("delta")
    return (reader if version is None else reader.option("versionAsOf", version)).load(path)


def is_readable(spark: SparkSession, path: str, version: int) -> bool:
    """Whether this version can still be read: VACUUM removes its data files, log clean-up the commits that list them.
    Every file is opened, without reading its rows. Other failures are raised."""
    # no statistics can decide this condition, so that Spark opens the files
    try:
        table_at(spark, path, version).where("rand() > 0.5").selectExpr("1").count()
    except Exception as error:
        if is_file_gone(error):
            return False
        raise
    return True


def with_metadata(
    frame: DataFrame,
    columns: Sequence[LakeColumn | DeltaColumn],
    form: Form = MIRROR,
    annotations: TableAnnotations | None = None,
    replaces: DataFrame | None = None,
) -> DataFrame:
    """``frame``, which has these columns and those of the form, with attribute numbers in its columns' metadata, and
    with what the source says of them: ``annotations`` now, or before in the table that it ``replaces``, or else in
    itself."""
    from pyspark.sql import functions

    old_metadata = (
        {field.metadata.get(ATTNUM): field.metadata for field in replaces.schema} if replaces is not None else {}
    )
    own, known = (
        {field.name: field.metadata for field in frame.schema},
        annotations.by_number if annotations is not None else {},
    )
    described: list[tuple[str, Metadata]] = []
    for column in columns:
        kept = said_in(old_metadata.get(column.attnum, own[column.name]))
        numbered = kept if column.attnum is None else kept | {ATTNUM: column.attnum}
        described.append((column.name, annotated(numbered, known.get(column.attnum or 0))))
    described += [(column.name, {MODE: form.mode}) for column in own_columns(form)]
    return frame.select(*(functions.col(quoted(name)).alias(name, metadata=known) for name, known in described))


def replace_table(frame: DataFrame, path: str, layout: TableLayout = NO_LAYOUT) -> None:
    """Make the table at ``path`` hold exactly the columns and rows of ``frame``, in one commit. Creates it if missing.
    ``layout``: its partitions, and the properties of a new table.

    The commit's provenance is that of the session of ``frame``. An existing table keeps its properties, and must have
    the features that the columns need.
    """
    writer = frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    properties = new_properties(path, features_of(frame.dtypes)) | dict(layout.properties)
    writer.options(**properties).partitionBy(*layout.partition_by).save(path)


def rows_written(path: Location, version: int) -> int:
    """The number of rows that the commit of this version wrote. Another writer may have committed since. Raises OSError
    and ValueError if the commit cannot be read."""
    return next(TransactionLog.of_version(path, version).commits()).output_rows


def add_features(spark: SparkSession, path: Location, features: Sequence[Feature]) -> None:
    """Give the table at ``path`` those of ``features`` that it does not have, in one commit of metadata.

    A property that somebody has set to another value keeps it. Raises Spark's own exceptions.
    """
    if not features:
        return
    with isolated_session(spark, {}) as own:
        keys = {row["key"] for row in own.sql(f"SHOW TBLPROPERTIES {delta_identifier(path)}").collect()}
        set_properties(own, path, {each.key: each.value for each in features if each.key not in keys})


def set_properties(spark: SparkSession, path: str, properties: Mapping[str, str], old: Mapping[str, str] = {}) -> None:
    """Set those of the ``properties`` of a table that are not so already. ``old``: those that it has, as far as that is
    known. Raises Spark's own exceptions."""
    others = {name: value for name, value in properties.items() if old.get(name) != value}
    if others:
        listed = ", ".join(f"{sql_text(name)} = {sql_text(value)}" for name, value in others.items())
        spark.sql(f"ALTER TABLE {delta_identifier(path)} SET TBLPROPERTIES ({listed})")
