"""Logged changes taken again: a table rebuilt from before 9 units of changes, against applying them the first time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from benchmarks.following import check_equal
from benchmarks.measurement import Measurement, timed
from benchmarks.workload import MIXED, Size, make_changes
from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.apply.apply import apply
from spark_jobs.capture.capture import capture
from spark_jobs.configuration import Pipeline
from spark_jobs.replay.rebuild import rebuild
from spark_jobs.run import Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def measure_replay(
    server: PostgresServer, pipeline: Pipeline, spark: SparkSession, size: Size
) -> Iterator[Measurement]:
    """The table is followed, and caught up; it ends in a comparison."""
    make_changes(server, size)
    windows = capture(pipeline).landed
    report, applied = timed(lambda: apply(Run(pipeline, lambda: spark)))
    for error in report.errors:
        raise error
    lo, hi = windows[0].window.lo, windows[-1].window.hi
    rebuilt, seconds = timed(lambda: rebuild(Run(pipeline, lambda: spark), lo, hi))
    for error in rebuilt.errors:
        raise error
    check_equal(spark, pipeline, MIXED)
    yield Measurement("table rebuilt from the log (of applying it)", seconds, size.changes, applied / seconds)
