"""Keep a Delta table of ours small, with Spark: compact small files, remove old ones, and with them what was deleted.

A deletion vector hides rows, and a dropped column is no longer read, but both are still in the data files. Once in the
time for which cuts are kept, the files that hold such data are written anew. So it has left the newest version after
that time at the latest, and the storage after that time once more.

Every version named by a cut stays readable for as long as cuts are kept: neither its files nor its part of Delta's log
are removed earlier. Each statement is a commit of its own, without our transaction identifier, and changes no rows.
https://docs.delta.io/latest/optimizations-oss.html, https://docs.delta.io/latest/delta-utility.html#remove-files,
https://docs.delta.io/latest/delta-deletion-vectors.html#apply-changes-with-reorg-table
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from spark_jobs.delta.table import delta_identifier
from spark_jobs.spark.session import isolated_session
from spark_jobs.writers.table_features import TRANSACTIONS_STAY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LEAST_HISTORY = timedelta(days=30)
_BEYOND_CUTS = timedelta(days=1)
# since when the table's files hold what is deleted; a table that was replaced has no earlier data
_PURGED = "postgres_cdc.purged"


@dataclass(frozen=True)
class TableFiles:
    """The number of the table's files before and after. ``purged``: those with deleted rows or dropped columns in them
    were written anew."""

    before: int
    after: int
    purged: bool = False


def history_properties(cuts: timedelta) -> dict[str, str]:
    """The Delta properties that keep versions readable for cuts that are up to ``cuts`` old."""
    return {
        "delta.deletedFileRetentionDuration": _interval(cuts),
        "delta.logRetentionDuration": _interval(max(cuts + _BEYOND_CUTS, _LEAST_HISTORY)),
    }


def keep_table_small(spark: SparkSession, path: str, cuts: timedelta) -> TableFiles:
    """Purge if that is due, then OPTIMIZE and VACUUM. Raises Spark's own exceptions."""
    table, now = delta_identifier(path), datetime.now(UTC)
    with isolated_session(spark, {"spark.databricks.delta.autoCompact.enabled": "false"}) as own:
        before = own.sql(f"DESCRIBE DETAIL {table}").collect()[0]
        purged = before["properties"].get(_PURGED)
        is_due = purged is not None and datetime.fromisoformat(purged) + cuts <= now
        if is_due:
            own.sql(f"REORG TABLE {table} APPLY (PURGE)")
        since = now.isoformat(timespec="seconds") if is_due or purged is None else purged
        _set_properties(own, table, before["properties"], {**history_properties(cuts), _PURGED: since})
        own.sql(f"OPTIMIZE {table}")
        own.sql(f"VACUUM {table}")
        after = own.sql(f"DESCRIBE DETAIL {table}").collect()[0]
    return TableFiles(before["numFiles"], after["numFiles"], is_due)


def _set_properties(spark: SparkSession, table: str, there: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    wanted = {**wanted, **TRANSACTIONS_STAY}
    if others := {name: value for name, value in wanted.items() if there.get(name) != value}:
        assignments = ", ".join(f"'{name}' = '{value}'" for name, value in others.items())
        spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({assignments})")


def _interval(duration: timedelta) -> str:
    return f"interval {int(duration.total_seconds() // 3600)} hours"
