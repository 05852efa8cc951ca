"""What the third year costs against the first day: a lake of many windows and cuts that nobody has maintained."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import psycopg

from benchmarks.aged_lake import age
from benchmarks.measurement import Measurement, median_of, timed
from benchmarks.workload import make_table
from cdc_assets.demo.embedded_postgres import PostgresServer
from cdc_assets.slot_observation import markers_since, observe
from spark_jobs.configuration import Pipeline
from spark_jobs.maintain.maintain import maintain
from spark_jobs.prepare import prepare
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.status import pipeline_status
from spark_jobs.sync import sync

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS, _CHANGES, _REPEATS = 1000, 10, 5
_AT_MOST = 1.2


def measure_age(
    server: PostgresServer,
    pipeline_of: Callable[[str, tuple[QualifiedName, ...]], Pipeline],
    spark: SparkSession,
    windows: int,
) -> Iterator[Measurement]:
    """``pipeline_of`` makes a pipeline of that name over those tables. The fresh one's share of the aged one's time."""
    fresh, aged = (_followed(server, pipeline_of, spark, kind) for kind in (0, windows))
    for work, name in ((_sync, "sync of 10 changes"), (_status, "status"), (_tick, "what a sensor tick reads")):
        # in turns: both see the machine as it is at that time
        pairs = [(work(server, fresh, spark, turn), work(server, aged, spark, turn)) for turn in range(_REPEATS + 1)]
        first, last = (sorted(seconds)[_REPEATS // 2] for seconds in zip(*pairs[1:], strict=True))
        stage = f"{name} on a log of {windows:,} windows, against a fresh one"
        yield Measurement(stage, last, None, first / last, at_least=1 / _AT_MOST)
    report, seconds = timed(lambda: maintain(aged, lambda: spark))
    assert report.change_log is not None
    yield Measurement(
        f"maintain: {report.change_log.files_before:,} files into {report.change_log.files_after}", seconds
    )


def _followed(
    server: PostgresServer,
    pipeline_of: Callable[[str, tuple[QualifiedName, ...]], Pipeline],
    spark: SparkSession,
    windows: int,
) -> Pipeline:
    table = QualifiedName("public", f"age_{windows}")
    make_table(server, table, _ROWS)
    pipeline = pipeline_of(f"age_{windows}", (table,))
    prepare(pipeline)
    if windows:
        age(pipeline, windows)
    _checked_sync(pipeline, spark)
    return pipeline


def _checked_sync(pipeline: Pipeline, spark: SparkSession) -> int:
    report = sync(pipeline, lambda: spark)
    for error in report.errors:
        raise error
    return sum(table.changes.updates for table in report.tables)


def _sync(server: PostgresServer, pipeline: Pipeline, spark: SparkSession, turn: int) -> float:
    with psycopg.connect(server.dsn()) as connection:
        connection.execute(f"UPDATE public.{pipeline.name} SET n = n + 1 WHERE id % 100 = {turn}")
    updates, seconds = timed(lambda: _checked_sync(pipeline, spark))
    if updates != _CHANGES:
        raise AssertionError("the sync did not bring the changes")
    return seconds


def _status(server: PostgresServer, pipeline: Pipeline, spark: SparkSession, turn: int) -> float:  # noqa: ARG001
    return median_of(3, lambda: pipeline_status(pipeline))


def _tick(server: PostgresServer, pipeline: Pipeline, spark: SparkSession, turn: int) -> float:  # noqa: ARG001
    def looked() -> None:
        observation = observe(pipeline)
        assert observation is not None
        markers_since(pipeline, observation.landed_end)

    return median_of(3, looked)
