"""What one sync costs when there is hardly anything to do: ten changes, a warm session, one table and ten."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import psycopg

from benchmarks.measurement import Measurement, timed
from benchmarks.workload import make_table
from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.configuration import Pipeline
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.sync import SyncReport, sync

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHANGES = 10
_ROWS = 1000
_REPEATS = 3


def measure_floor(
    server: PostgresServer, pipeline_of: Callable[[str, tuple[QualifiedName, ...]], Pipeline], spark: SparkSession
) -> Iterator[Measurement]:
    """``pipeline_of`` makes a pipeline of that name over those tables."""
    one = _median_sync(server, pipeline_of, spark, 1)
    yield Measurement("sync of 10 changes, 1 table", one, _CHANGES, at_most=3.0)
    ten = _median_sync(server, pipeline_of, spark, 10)
    yield Measurement("sync of 10 changes each, 10 tables", ten, 10 * _CHANGES, at_most=3.0 + 9 * 1.6)


def _median_sync(
    server: PostgresServer,
    pipeline_of: Callable[[str, tuple[QualifiedName, ...]], Pipeline],
    spark: SparkSession,
    count: int,
) -> float:
    tables = tuple(QualifiedName("public", f"floor_{count}_{n}") for n in range(count))
    for table in tables:
        make_table(server, table, _ROWS)
    pipeline = pipeline_of(f"floor_{count}", tables)
    _sync(pipeline, spark)
    seconds = []
    for turn in range(_REPEATS + 1):  # the first warms
        with psycopg.connect(server.dsn()) as connection:
            for table in tables:
                connection.execute(f"UPDATE {table} SET n = n + 1 WHERE id % 100 = {turn}")
        report, took = timed(lambda: _sync(pipeline, spark))
        if sum(table.changes.updates for table in report.tables) != count * _CHANGES:
            raise AssertionError("the sync did not bring the changes")
        seconds.append(took)
    return sorted(seconds[1:])[_REPEATS // 2]


def _sync(pipeline: Pipeline, spark: SparkSession) -> SyncReport:
    report = sync(pipeline, lambda: spark)
    for error in report.errors:
        raise error
    return report
