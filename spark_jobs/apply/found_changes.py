"""What a range of windows changes in one table: computed on the driver where it is small, else by executors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_jobs.apply.landed_changes import LandedChanges, landed_bytes, landed_changes
from spark_jobs.apply.net_source import NetSource, net_on_driver
from spark_jobs.apply.net_staged import LoggedRange, net_staged
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.lake.delta_table import check_columns
from spark_jobs.lake.table_state import TableState
from spark_jobs.spark.errors import spark_errors
from spark_jobs.spark.session import isolated_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class FoundChanges:
    """The net change of a range, and the description of the table that it was computed with."""

    landed: LandedChanges
    net: NetSource


@contextmanager
def changes_on_driver(
    spark: SparkSession, pipeline: Pipeline, state: TableState, relid: int, markers: Sequence[WindowMarker]
) -> Iterator[FoundChanges | None]:
    """The net change, computed on the driver: no Python worker to wake. None: the snapshot shows it all."""
    log = ChangeLog(pipeline.lake.change_log)
    landed = landed_changes(log, relid, state, markers[0].ordinal, markers[-1].ordinal)
    if landed is None:
        yield None
        return
    _check_columns(spark, pipeline, landed)
    with net_on_driver(landed, state, pipeline.lake, pipeline.on_unrepresentable) as net:
        yield FoundChanges(landed, net)


@contextmanager
def changes_on_executors(
    spark: SparkSession, pipeline: Pipeline, state: TableState, relid: int, markers: Sequence[WindowMarker]
) -> Iterator[FoundChanges | None]:
    """The net change, computed by executors."""
    first, last = markers[0].ordinal, markers[-1].ordinal
    logged = LoggedRange(pipeline.lake.change_log, relid, state, first, last, landed_bytes(markers, relid))
    with isolated_session(spark, {}) as own:
        with spark_errors(f"{state.name}: the change log at {logged.change_log} cannot be read"):
            landed = logged.described(own)
        if landed is None:
            yield None
            return
        _check_columns(own, pipeline, landed)
        with (
            spark_errors(f"{state.name}: windows {first} to {last} were not applied"),
            net_staged(own, pipeline.lake, logged, landed, pipeline.on_unrepresentable) as net,
        ):
            yield FoundChanges(landed, net)


def _check_columns(spark: SparkSession, pipeline: Pipeline, landed: LandedChanges) -> None:
    path = pipeline.lake.table(landed.shape.name)
    with spark_errors(f"{landed.shape.name}: the table at {path} cannot be read"):
        check_columns(spark, path, landed.shape, landed.shape_lsn)
