"""What one sync costs when there is hardly anything to do: ten changes a table, in a process that has worked before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg

from benchmarks.measurement import Measurement, timed
from benchmarks.workload import make_table
from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.configuration import MergeEngine, Pipeline
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.sync import SyncReport, sync

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHANGES = 10
_ROWS = 1000
# syncs: the first ones of a session also pay for the JVM's compiler, and those before a table's first checkpoint cost
# Spark less than all later ones
_WARMING, _REPEATS = 10, 5
_MANY = 100
_AT_MOST: tuple[tuple[MergeEngine, float, float], ...] = (("spark", 1.8, 0.8), ("auto", 0.8, 0.1))


def measure_floor(
    server: PostgresServer, pipeline_of: Callable[[str, tuple[QualifiedName, ...]], Pipeline], spark: SparkSession
) -> Iterator[Measurement]:
    """``pipeline_of`` makes a pipeline of that name over those tables."""
    for engine, first, further in _AT_MOST:
        for count in (1, 10):
            took = _median_sync(server, pipeline_of, spark, engine, count)
            at_most = round(first + (count - 1) * further, 1)
            yield Measurement(
                f"sync of 10 changes a table, tables: {count}, {engine}", took, count * _CHANGES, at_most=at_most
            )


def measure_many(
    server: PostgresServer, pipeline_of: Callable[[str, tuple[QualifiedName, ...]], Pipeline], spark: SparkSession
) -> Iterator[Measurement]:
    """A hundred tables, all of which have changed."""
    took = _median_sync(server, pipeline_of, spark, "auto", _MANY)
    yield Measurement(f"sync of 10 changes a table, tables: {_MANY}, auto", took, _MANY * _CHANGES, at_most=15.0)


def _median_sync(
    server: PostgresServer,
    pipeline_of: Callable[[str, tuple[QualifiedName, ...]], Pipeline],
    spark: SparkSession,
    engine: MergeEngine,
    count: int,
) -> float:
    tables = tuple(QualifiedName("public", f"floor_{engine}_{count}_{n}") for n in range(count))
    for table in tables:
        make_table(server, table, _ROWS)
    pipeline = replace(pipeline_of(f"floor_{engine}_{count}", tables), merge_engine=engine)
    _sync(pipeline, spark)
    seconds = []
    for turn in range(_WARMING + _REPEATS):
        with psycopg.connect(server.dsn()) as connection:
            for table in tables:
                connection.execute(f"UPDATE {table} SET n = n + 1 WHERE id % 100 = {turn}")
        report, took = timed(lambda: _sync(pipeline, spark))
        if sum(table.changes.updates for table in report.tables) != count * _CHANGES:
            raise AssertionError("the sync did not bring the changes")
        if engine == "auto" and any(table.engine != "deltalake" for table in report.tables):
            raise AssertionError("Spark has written what was to be written without it")
        seconds.append(took)
    return sorted(seconds[_WARMING:])[_REPEATS // 2]


def _sync(pipeline: Pipeline, spark: SparkSession) -> SyncReport:
    report = sync(pipeline, lambda: spark)
    for error in report.errors:
        raise error
    return report
