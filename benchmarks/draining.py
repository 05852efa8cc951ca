"""A backlog of WAL that piled up while nothing ran, drained by one sync: its time, and that memory does not grow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from benchmarks.following import check_equal, peek
from benchmarks.measurement import Measurement, timed
from benchmarks.sync_process import sync_alone
from benchmarks.workload import Size, make_table
from cdc_assets.configuration.load_pipeline import load_pipeline
from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.qualified_name import QualifiedName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BYTES_OF_A_UNIT = 20_000
_PARTS = 4
_TENTHS = 10
_MIB = 1 << 20


def measure_drain(
    server: PostgresServer, configuration: Path, spark: SparkSession, size: Size
) -> Iterator[Measurement]:
    """``configuration`` names one table, which is made now. A quarter of the backlog comes first, to compare with."""
    pipeline = load_pipeline(configuration)
    assert pipeline.tables is not None
    table, engine = pipeline.tables[0].name, pipeline.merge_engine
    make_table(server, table, size.rows)
    sync_alone(configuration)
    whole = size.unit * _BYTES_OF_A_UNIT
    for backlog in (whole // _PARTS, whole):
        wal = _make_backlog(server, table, backlog)
        _, limit = timed(lambda: peek(server, pipeline))
        seconds, peak = sync_alone(configuration)
        check_equal(spark, pipeline, table)
        what = f"backlog of {wal // _MIB:,} MiB, {engine}"
        yield Measurement(f"{what}: the server's decoding (limit)", limit, None, 1.0)
        yield Measurement(f"{what}: drained", seconds, None, limit / seconds)
        for process, held in (("driver", peak.driver), ("JVM", peak.jvm)):
            yield Measurement(f"{what}: peak memory of {process}", mebibytes=held / _MIB)


def _make_backlog(server: PostgresServer, table: QualifiedName, wal_bytes: int) -> int:
    """Update a tenth of the rows after the other, until there is so much WAL. How many bytes of it there are."""
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        ((begin,),) = connection.execute("SELECT pg_current_wal_lsn()").fetchall()
        turn, written = 0, 0
        while written < wal_bytes:
            connection.execute(f"UPDATE {table} SET n = n + 1, paid = NOT paid WHERE id % {_TENTHS} = {turn % _TENTHS}")
            ((written,),) = connection.execute("SELECT pg_current_wal_lsn() - %s::pg_lsn", [begin]).fetchall()
            turn += 1
    return int(written)
