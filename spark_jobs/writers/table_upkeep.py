"""Keep a Delta table of ours small: compact small files, remove old ones, and with them what was deleted.

This process does so for a plain table, and Spark for any other. A deletion vector hides rows, and a dropped column is
no longer read, but both are still in the data files. Once in the time for which cuts are kept, Spark writes the files
that hold such data anew. So it has left the newest version after that time at the latest, and the storage after that
time once more.

Every version named by a cut stays readable for as long as cuts are kept: neither its files nor its part of Delta's log
are removed earlier. Each step is a commit of its own, without our transaction identifier, and changes no rows.
https://docs.delta.io/latest/optimizations-oss.html, https://docs.delta.io/latest/delta-utility.html#remove-files,
https://docs.delta.io/latest/delta-deletion-vectors.html#apply-changes-with-reorg-table
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from spark_jobs.configuration import Pipeline
from spark_jobs.delta.checkpoints import shorten_log
from spark_jobs.delta.history import History
from spark_jobs.delta.listed_table import ListedTable
from spark_jobs.delta.table import delta_identifier
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.retries import again_when_overtaken
from spark_jobs.spark.provider import SparkProvider
from spark_jobs.spark.session import isolated_session
from spark_jobs.storage import Location
from spark_jobs.writers.table_features import TRANSACTIONS_STAY, short_log
from spark_jobs.writers.with_arrow.plain_table import (
    SmallFiles,
    compacted,
    has_known_columns,
    plain_table,
    small_files,
)
from spark_jobs.writers.with_spark.delta_table import set_properties
from spark_jobs.writers.with_spark.simpler_table import TableSimplified
from spark_jobs.writers.write_choice import compaction_writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NOT_COMPACTED = {"spark.databricks.delta.autoCompact.enabled": "false"}
# since when the table's files hold what is deleted; a table that was replaced has no earlier data
_PURGED = "postgres_cdc.purged"


@dataclass(frozen=True)
class TableFiles:
    """The number of the table's files before and after. ``purged``: those with deleted rows or dropped columns in them
    were written anew."""

    before: int
    after: int
    purged: bool = False


@dataclass(frozen=True)
class TableKept:
    """``same_rows``: the Delta version that was found, and the one that was left, if these show the same rows; None if
    other writers may have committed in between. ``simplified``: None if that was not asked for."""

    files: TableFiles
    same_rows: tuple[int, int] | None = None
    simplified: TableSimplified | None = None


@again_when_overtaken
def keep_table_small(pipeline: Pipeline, name: QualifiedName, spark: SparkProvider) -> TableKept:
    """Compact the table, set its properties, and remove what no cut needs any more. ``spark`` is called only if the
    table needs it. Raises CdcError, and Spark's own exceptions."""
    path, history = pipeline.lake.table(name), History.for_cuts(pipeline.retention.cuts)
    before = table = plain_table(path)
    small = small_files(table) if table is not None else ()
    if table is not None and small and not _is_compacted_on_driver(pipeline, name, table, small):
        with isolated_session(spark(), _NOT_COMPACTED) as own:
            own.sql(f"OPTIMIZE {delta_identifier(path)}")
        small, table = (), plain_table(path)
    if before is None or table is None:
        return TableKept(_keep_with_spark(spark(), path, history))
    kept = (compacted(table, small) if small else table).with_properties(_wanted(path, table.configuration, history))
    shorten_log(path, kept.version - kept.checkpoint)
    kept.remove_expired(history)
    return TableKept(TableFiles(len(before.files), len(kept.files)), (table.version, kept.version))


def _is_compacted_on_driver(pipeline: Pipeline, name: QualifiedName, table: ListedTable, small: SmallFiles) -> bool:
    size, layout = sum(file["size"] for file in small), pipeline.table(name).options.layout
    writer = compaction_writer(pipeline.merge_engine, pipeline.spark, layout, size, pipeline.writes)
    return writer == "deltalake" and has_known_columns(table)


def _keep_with_spark(spark: SparkSession, path: Location, history: History) -> TableFiles:
    """Purge if that is due, then OPTIMIZE and VACUUM. Raises Spark's own exceptions."""
    table, now = delta_identifier(path), datetime.now(UTC)
    with isolated_session(spark, _NOT_COMPACTED) as own:
        before = own.sql(f"DESCRIBE DETAIL {table}").collect()[0]
        purged = before["properties"].get(_PURGED)
        is_due = purged is not None and datetime.fromisoformat(purged) + history.files <= now
        if is_due:
            own.sql(f"REORG TABLE {table} APPLY (PURGE)")
        since = now.isoformat(timespec="seconds") if is_due or purged is None else purged
        wanted = {**_wanted(path, before["properties"], history), _PURGED: since}
        set_properties(own, path, wanted, before["properties"])
        own.sql(f"OPTIMIZE {table}")
        own.sql(f"VACUUM {table}")
        after = own.sql(f"DESCRIBE DETAIL {table}").collect()[0]
    return TableFiles(before["numFiles"], after["numFiles"], is_due)


def _wanted(path: Location, properties: Mapping[str, str], history: History) -> dict[str, str]:
    """The properties to be set on the table at ``path``, which has ``properties``."""
    of_owner = {name: properties.get(name, value) for name, value in short_log(path).items()}
    return of_owner | history.properties | TRANSACTIONS_STAY
