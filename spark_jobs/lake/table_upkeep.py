"""Keep a Delta table of ours small, with Spark: compact small files, remove old ones.

Every version named by a cut stays readable for as long as cuts are kept: neither its files nor its part of Delta's log
are removed earlier. Each statement is a commit of its own, without our transaction identifier, and changes no rows.
https://docs.delta.io/latest/optimizations-oss.html, https://docs.delta.io/latest/delta-utility.html#remove-files
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from spark_jobs.delta.table import delta_identifier
from spark_jobs.lake.merge_sql import TRANSACTIONS_STAY
from spark_jobs.spark.session import isolated_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LEAST_HISTORY = timedelta(days=30)
_BEYOND_CUTS = timedelta(days=1)


@dataclass(frozen=True)
class TableFiles:
    """The number of the table's files before and after."""

    before: int
    after: int


def history_properties(cuts: timedelta) -> dict[str, str]:
    """The Delta properties that keep versions readable for cuts that are up to ``cuts`` old."""
    return {
        "delta.deletedFileRetentionDuration": _interval(cuts),
        "delta.logRetentionDuration": _interval(max(cuts + _BEYOND_CUTS, _LEAST_HISTORY)),
    }


def keep_table_small(spark: SparkSession, path: str, cuts: timedelta) -> TableFiles:
    """Set the retention properties, then OPTIMIZE and VACUUM. Raises Spark's own exceptions."""
    table = delta_identifier(path)
    with isolated_session(spark, {"spark.databricks.delta.autoCompact.enabled": "false"}) as own:
        detail = own.sql(f"DESCRIBE DETAIL {table}").collect()[0]
        wanted = {**history_properties(cuts), **dict([TRANSACTIONS_STAY])}
        others = {name: value for name, value in wanted.items() if detail["properties"].get(name) != value}
        if others:
            assignments = ", ".join(f"'{name}' = '{value}'" for name, value in others.items())
            own.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({assignments})")
        own.sql(f"OPTIMIZE {table}")
        own.sql(f"VACUUM {table}")
        after = own.sql(f"DESCRIBE DETAIL {table}").collect()[0]
    return TableFiles(detail["numFiles"], after["numFiles"])


def _interval(duration: timedelta) -> str:
    return f"interval {int(duration.total_seconds() // 3600)} hours"
