"""A table without a key beside the same one with a key: random updates and deletes, a tenth of its rows twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

import psycopg

from benchmarks.following import check_equal
from benchmarks.measurement import Measurement, timed
from benchmarks.workload import ROW, Size, make_table
from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.apply.apply import apply
from spark_jobs.capture.capture import capture
from spark_jobs.configuration import MergeEngine, Pipeline
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.sync import sync

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KEYED, _KEYLESS = QualifiedName("public", "keyed"), QualifiedName("public", "keyless")
_OF_KEYED = 0.67  # of the speed with a key


def measure_without_key(
    server: PostgresServer,
    pipeline_of: Callable[[str, tuple[QualifiedName, ...]], Pipeline],
    spark: SparkSession,
    size: Size,
) -> Iterator[Measurement]:
    """Two units of updates and one of deletes, applied in one commit, by each engine; each ends in a comparison. Twice,
    as the first large write of a session also pays for the JVM's warming."""
    pipelines = dict[QualifiedName, tuple[Pipeline, ...]]()
    for table in (_KEYED, _KEYLESS):
        make_table(server, table, size.rows)
        if table == _KEYLESS:
            _without_key(server, size.rows)
        pipelines[table] = tuple(
            replace(pipeline_of(f"{table.relname}_{engine}", (table,)), merge_engine=engine)
            for engine in get_args(MergeEngine)
        )
        for pipeline in pipelines[table]:
            _raise_first(sync(pipeline, lambda: spark).errors)
    for times in ("first", "again"):
        seconds = dict[MergeEngine, float]()
        for table, of_engines in pipelines.items():
            changes = _change(server, table)
            for pipeline in of_engines:
                engine, key = pipeline.merge_engine, "by key" if table == _KEYED else "without a key"
                taken = _applied(pipeline, spark)
                check_equal(spark, pipeline, table)
                ratio, least = (seconds[engine] / taken, _OF_KEYED) if table == _KEYLESS else (None, None)
                what = f"updates and deletes applied {key}, {engine}, {times}"
                yield Measurement(what, taken, changes, ratio, at_least=least)
                seconds[engine] = taken


def _applied(pipeline: Pipeline, spark: SparkSession) -> float:
    capture(pipeline)
    report, seconds = timed(lambda: apply(Run(pipeline, lambda: spark)))
    _raise_first(report.errors)
    return seconds


def _raise_first(errors: Sequence[Exception]) -> None:
    for error in errors:
        raise error


def _without_key(server: PostgresServer, rows: int) -> None:
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute(f"ALTER TABLE {_KEYLESS} DROP CONSTRAINT {_KEYLESS.relname}_pkey, ALTER id DROP NOT NULL")
        connection.execute(f"ALTER TABLE {_KEYLESS} REPLICA IDENTITY FULL")
        connection.execute(f"DELETE FROM {_KEYLESS} WHERE id > {rows - rows // 10}")
        connection.execute(f"INSERT INTO {_KEYLESS} SELECT {ROW} FROM generate_series(1, {rows // 10}) g")


def _change(server: PostgresServer, table: QualifiedName) -> int:
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute("SELECT setseed(0.5)")
        updated = connection.execute(f"UPDATE {table} SET n = n + 1, paid = NOT paid WHERE random() < 0.2").rowcount
        return updated + connection.execute(f"DELETE FROM {table} WHERE random() < 0.1").rowcount
