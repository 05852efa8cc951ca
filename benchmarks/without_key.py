"""A table without a key beside the same one with a key: random updates and deletes, a tenth of its rows twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import psycopg

from benchmarks.following import check_equal
from benchmarks.measurement import Measurement, timed
from benchmarks.workload import ROW, Size, make_table
from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.configuration import Pipeline
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.sync import apply, capture, sync

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KEYED, _KEYLESS = QualifiedName("public", "keyed"), QualifiedName("public", "keyless")


def measure_without_key(
    server: PostgresServer,
    pipeline_of: Callable[[str, tuple[QualifiedName, ...]], Pipeline],
    spark: SparkSession,
    size: Size,
) -> Iterator[Measurement]:
    """Two units of updates and one of deletes, applied in one commit; each ends in a comparison."""
    for table in (_KEYED, _KEYLESS):
        make_table(server, table, size.rows)
        if table == _KEYLESS:
            _without_key(server, size.rows)
        pipeline = pipeline_of(table.relname, (table,))
        for error in sync(pipeline, lambda: spark).errors:
            raise error
        changes = _change(server, table)
        capture(pipeline)
        report, seconds = timed(lambda pipeline=pipeline: apply(Run(pipeline, lambda: spark)))  # type: ignore[misc]
        for error in report.errors:
            raise error
        check_equal(spark, pipeline, table)
        what = "by key" if table == _KEYED else "without a key"
        yield Measurement(f"updates and deletes applied {what}", seconds, changes)


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
