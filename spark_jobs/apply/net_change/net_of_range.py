"""The net change of a range of windows in one table, computed on the driver if it is small, else by executors."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from spark_jobs.apply.landed_changes import LandedChanges, landed_changes
from spark_jobs.apply.net_change.on_driver import net_on_driver
from spark_jobs.apply.net_change.on_executors import described_on_executors, net_on_executors
from spark_jobs.apply.table_range import TableRange
from spark_jobs.schema.column_changes import DeltaColumn
from spark_jobs.spark.errors import spark_errors
from spark_jobs.writers.net_source import NetSource
from spark_jobs.writers.with_spark.delta_table import table_columns


def landed_in_range(work: TableRange, lake_columns: Sequence[DeltaColumn]) -> LandedChanges | None:
    """The range's changes in the log, or, where executors read the rest, only the rows that describe them.

    None if the table's snapshot already shows everything.
    """
    return landed_changes(work, lake_columns) if work.is_small else described_on_executors(work, lake_columns)


def net_of_range(work: TableRange, landed: LandedChanges) -> AbstractContextManager[NetSource]:
    """``landed``: what ``landed_in_range`` returned. Staged files live as long as the context."""
    return net_on_driver(work, landed) if work.is_small else net_on_executors(work, landed)


def columns_of_lake(work: TableRange) -> Sequence[DeltaColumn]:
    if work.opened is not None:
        return work.opened.columns
    with spark_errors(f"{work.name}: the table at {work.path} cannot be read", name=work.name, path=work.path):
        return table_columns(work.run.spark(), work.path)
