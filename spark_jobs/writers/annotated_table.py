"""A Delta table made to say what the source says about it: see ``delta_fields``. No row changes.

Without Spark that is one commit, with either engine. For tables that only Spark can write it takes a statement for each
comment, and SQL has no words for the keys of our own: these are written with the table's next snapshot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_jobs.delta.table import delta_identifier
from spark_jobs.schema.annotations import TableAnnotations
from spark_jobs.spark.provider import SparkProvider
from spark_jobs.spark.session import isolated_session
from spark_jobs.storage import Location
from spark_jobs.writers.delta_fields import ATTNUM, COMMENT, COMMENTED, annotated, description
from spark_jobs.writers.merge_sql import quoted, sql_text
from spark_jobs.writers.with_arrow.opened_table import FEATURES, OpenedTable, opened_table
from spark_jobs.writers.with_arrow.table_metadata import commit_metadata, said_by_source
from spark_jobs.writers.with_spark.delta_table import set_properties, table_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def annotate_table(
    path: Location, annotations: TableAnnotations, spark: SparkProvider, opened: OpenedTable | None = None
) -> bool:
    """Write what of ``annotations`` the table at ``path`` does not say yet. Returns whether there was any.

    ``opened``: the table, if the caller has just opened it. ``spark`` is called only if Spark has to do it. Raises
    OvertakenError if somebody commits in between, LakeError, and Spark's own exceptions.
    """
    opened = opened or opened_table(path)
    if opened is None or not opened.features <= FEATURES:
        return _by_spark(spark(), path, annotations)
    change = said_by_source(opened, annotations)
    if change:
        commit_metadata(opened, change)
    return bool(change)


def _by_spark(spark: SparkSession, path: Location, annotations: TableAnnotations) -> bool:
    table, known, statements = delta_identifier(path), annotations.by_number, []
    with isolated_session(spark, {}) as own:
        detail = own.sql(f"DESCRIBE DETAIL {table}").collect()[0]
        text = description(detail["description"], detail["properties"], annotations)
        if text is not None:
            set_properties(own, path, {COMMENT: text, COMMENTED: "true" if text else "false"})
        for field in table_at(own, path).schema:
            now = annotated(field.metadata, known.get(field.metadata.get(ATTNUM, 0))).get(COMMENT, "")
            if now != field.metadata.get(COMMENT, ""):
                statements.append(f"ALTER COLUMN {quoted(field.name)} COMMENT {sql_text(now)}")
        for statement in statements:
            own.sql(f"ALTER TABLE {table} {statement}")
    return text is not None or bool(statements)
