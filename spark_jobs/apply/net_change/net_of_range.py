"""The net change of a range of windows in one table, computed on the driver if it is small, else by executors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from spark_jobs.apply.landed_changes import LandedChanges, described_changes, landed_changes
from spark_jobs.apply.net_change.on_driver import net_on_driver
from spark_jobs.apply.net_change.on_executors import describing_rows, net_on_executors
from spark_jobs.apply.table_range import TableRange
from spark_jobs.schema.column_changes import DeltaColumn
from spark_jobs.spark.errors import spark_errors
from spark_jobs.spark.session import isolated_session
from spark_jobs.writers.delta_table import table_columns
from spark_jobs.writers.net_source import NetSource


def landed_range(work: TableRange) -> LandedChanges | None:
    """The range's changes in the log: all of them if the range is small, else only the rows that describe them.

    None if the table's snapshot already shows everything.
    """
    lake_columns = columns_of_lake(work)
    if work.is_small:
        return landed_changes(work, lake_columns)
    with (
        isolated_session(work.run.spark(), {}) as own,
        spark_errors(f"{work.name}: the change log at {work.pipeline.lake.change_log} cannot be read"),
    ):
        return described_changes(describing_rows(own, work), work, lake_columns)


def columns_of_lake(work: TableRange) -> Sequence[DeltaColumn]:
    """The columns of the lake's table."""
    if work.opened is not None:
        return work.opened.columns
    with spark_errors(f"{work.name}: the table at {work.path} cannot be read", name=work.name, path=work.path):
        return table_columns(work.run.spark(), work.path)


@contextmanager
def net_of_range(work: TableRange, landed: LandedChanges) -> Iterator[NetSource]:
    """The range's net change. ``landed``: what ``landed_range`` returned for it. Staged files live as long as the
    context."""
    if work.is_small:
        with net_on_driver(work, landed) as net:
            del landed  # with the rows, of which there may be many
            yield net
        return
    with (
        isolated_session(work.run.spark(), {}) as own,
        spark_errors(f"{work.name}: {work.windows} were not applied", name=work.name, path=work.path),
        net_on_executors(own, work, landed) as net,
    ):
        yield net
