"""The net change of a range of windows in one table, computed on the driver if it is small, else by executors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from spark_jobs.apply.landed_changes import LandedChanges, landed_changes
from spark_jobs.apply.net_change.on_driver import net_on_driver
from spark_jobs.apply.net_change.on_executors import described_on_executors, net_on_executors
from spark_jobs.apply.table_range import TableRange
from spark_jobs.schema.column_changes import DeltaColumn
from spark_jobs.spark.errors import spark_errors
from spark_jobs.spark.session import isolated_session
from spark_jobs.writers.delta_table import table_columns
from spark_jobs.writers.net_source import NetSource
from spark_jobs.writers.opened_table import OpenedTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def landed_range(work: TableRange, opened: OpenedTable | None = None) -> LandedChanges | None:
    """The range's changes in the log: all of them if the range is small, else only the rows that describe them.

    None if the table's snapshot already shows everything. ``opened``: the table, if it is already open.
    """
    lake_columns = columns_of_lake(work, opened)
    if opened is not None or is_small(work):
        return landed_changes(work, lake_columns)
    return _described(work.run.spark(), work, lake_columns)


def columns_of_lake(work: TableRange, opened: OpenedTable | None) -> Sequence[DeltaColumn]:
    """The columns of the lake's table; ``opened``: the table, if it is already open."""
    if opened is not None:
        return opened.columns
    with spark_errors(f"{work.name}: the table at {work.path} cannot be read", name=work.name, path=work.path):
        return table_columns(work.run.spark(), work.path)


@contextmanager
def net_of_range(work: TableRange, landed: LandedChanges, *, for_spark: bool = True) -> Iterator[NetSource]:
    """The range's net change. ``landed``: what ``landed_range`` returned for it. Staged files live as long as the
    context. ``for_spark``: it is certain that Spark writes it."""
    if is_small(work):
        with net_on_driver(work, landed, for_spark=for_spark) as net:
            del landed  # with the rows, of which there may be many
            yield net
        return
    windows = f"windows {work.first.ordinal} to {work.last.ordinal}"
    with (
        isolated_session(work.run.spark(), {}) as own,
        spark_errors(f"{work.name}: {windows} were not applied", name=work.name, path=work.path),
        net_on_executors(own, work, landed) as net,
    ):
        yield net


def is_small(work: TableRange) -> bool:
    """Whether the range's net change is computed on the driver: it has few bytes, or few rows for its bytes. A value of
    200 MB would be whole in a Python worker and several times in a JVM, too, where the default heap is too small."""
    return work.pipeline.writes.are_for_driver(work.changes.rows, work.bytes)


def _described(spark: SparkSession, work: TableRange, lake_columns: Sequence[DeltaColumn]) -> LandedChanges | None:
    with (
        isolated_session(spark, {}) as own,
        spark_errors(f"{work.name}: the change log at {work.pipeline.lake.change_log} cannot be read"),
    ):
        return described_on_executors(own, work, lake_columns)
