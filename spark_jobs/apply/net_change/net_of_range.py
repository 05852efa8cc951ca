"""The net change of a range of windows in one table, computed on the driver if it is small, else by executors."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from spark_jobs.apply.landed_changes import LandedChanges
from spark_jobs.apply.net_change.on_driver import OnDriver
from spark_jobs.apply.net_change.on_executors import OnExecutors
from spark_jobs.apply.table_range import TableRange
from spark_jobs.schema.column_changes import DeltaColumn
from spark_jobs.spark.errors import spark_errors
from spark_jobs.writers.net_source import NetSource
from spark_jobs.writers.with_spark.delta_table import table_columns


class NetComputer(Protocol):
    """Computes the net change of a range: this process, or executors."""

    def landed(self, lake_columns: Sequence[DeltaColumn], /) -> LandedChanges | None:
        """The range's changes in the log, or, where executors read the rest, only the rows that describe them.

        None if the table's snapshot already shows everything.
        """

    def net(self, landed: LandedChanges, /) -> AbstractContextManager[NetSource]:
        """The net change. ``landed``: what the function of that name returned. Staged files live as long as the
        context."""


def computer_of(work: TableRange) -> NetComputer:
    return OnDriver(work) if work.is_small else OnExecutors(work)


def columns_of_lake(work: TableRange) -> Sequence[DeltaColumn]:
    """The columns of the lake's table."""
    if work.opened is not None:
        return work.opened.columns
    with spark_errors(f"{work.name}: the table at {work.path} cannot be read", name=work.name, path=work.path):
        return table_columns(work.run.spark(), work.path)
