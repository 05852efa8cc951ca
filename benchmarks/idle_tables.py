"""What tables cost that do not change: ten changed ones among many, against ten alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg

from benchmarks.measurement import Measurement, timed
from benchmarks.workload import make_table
from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.configuration import Pipeline
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.sync import sync

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS, _CHANGED, _REPEATS = 100, 10, 7
_AT_MOST = 1.3


def measure_idle_tables(
    server: PostgresServer,
    pipeline_of: Callable[[str, tuple[QualifiedName, ...]], Pipeline],
    spark: SparkSession,
    count: int,
) -> Iterator[Measurement]:
    """``pipeline_of`` makes a pipeline of that name over those tables; ``count``: how many there are."""
    few = _followed(server, pipeline_of, spark, "few", _CHANGED)
    many, seconds = timed(lambda: _followed(server, pipeline_of, spark, "many", count))
    yield Measurement(f"first snapshots of {count:,} tables of {_ROWS} rows", seconds, count)
    # in turns: both see the machine as it is at that time
    pairs = [(_sync(server, few, spark), _sync(server, many, spark)) for _ in range(_REPEATS + 1)]
    alone, among = (sorted(seconds)[_REPEATS // 2] for seconds in zip(*pairs[1:], strict=True))
    stage = f"sync of {_CHANGED} changed tables among {count:,}, against {_CHANGED} alone"
    yield Measurement(stage, among, None, alone / among, at_least=1 / _AT_MOST)


def _followed(
    server: PostgresServer,
    pipeline_of: Callable[[str, tuple[QualifiedName, ...]], Pipeline],
    spark: SparkSession,
    kind: str,
    count: int,
) -> Pipeline:
    tables = tuple(QualifiedName("public", f"{kind}_{n}") for n in range(count))
    for table in tables:
        make_table(server, table, _ROWS)
    pipeline = replace(pipeline_of(kind, tables), merge_engine="auto")
    for error in sync(pipeline, lambda: spark).errors:
        raise error
    return pipeline


def _sync(server: PostgresServer, pipeline: Pipeline, spark: SparkSession) -> float:
    with psycopg.connect(server.dsn()) as connection:
        for table in (pipeline.tables or ())[:_CHANGED]:
            connection.execute(f"UPDATE {table.name} SET n = n + 1 WHERE id <= 10")
    report, seconds = timed(lambda: sync(pipeline, lambda: spark))
    if report.errors or sum(table.changes.updates for table in report.tables) != 10 * _CHANGED:
        raise AssertionError("the sync did not bring the changes")
    return seconds
