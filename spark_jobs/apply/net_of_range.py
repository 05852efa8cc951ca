"""The net change of a range of windows in one table: computed on the driver where it is small, else by executors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from spark_jobs.apply.landed_changes import LandedChanges, landed_changes
from spark_jobs.apply.net_on_driver import net_on_driver
from spark_jobs.apply.net_on_executors import described_on_executors, net_on_executors
from spark_jobs.apply.table_range import TableRange
from spark_jobs.lake.delta_table import check_columns
from spark_jobs.lake.net_write import NetSource
from spark_jobs.spark.errors import spark_errors
from spark_jobs.spark.session import isolated_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def net_of_range(spark: SparkSession, work: TableRange, relid: int) -> Iterator[NetSource | None]:
    """None: the table's snapshot shows it all. What is staged lives as long as the context."""
    find = _on_driver if work.bytes_of(relid) <= work.on_driver_bytes else _on_executors
    with find(spark, work, relid) as net:
        yield net


@contextmanager
def _on_driver(spark: SparkSession, work: TableRange, relid: int) -> Iterator[NetSource | None]:
    landed = landed_changes(work, relid)
    if landed is None:
        yield None
        return
    _check_columns(spark, work, landed)
    with net_on_driver(work, landed) as net:
        yield net


@contextmanager
def _on_executors(spark: SparkSession, work: TableRange, relid: int) -> Iterator[NetSource | None]:
    with isolated_session(spark, {}) as own:
        with spark_errors(f"{work.name}: the change log at {work.pipeline.lake.change_log} cannot be read"):
            landed = described_on_executors(own, work, relid)
        if landed is None:
            yield None
            return
        _check_columns(own, work, landed)
        windows = f"windows {work.first.ordinal} to {work.last.ordinal}"
        with (
            spark_errors(f"{work.name}: {windows} were not applied"),
            net_on_executors(own, work, relid, landed) as net,
        ):
            yield net


def _check_columns(spark: SparkSession, work: TableRange, landed: LandedChanges) -> None:
    with spark_errors(f"{work.name}: the table at {work.path} cannot be read"):
        check_columns(spark, work.path, landed.shape, landed.shape_lsn)
