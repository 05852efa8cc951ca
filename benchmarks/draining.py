"""A backlog of two gigabytes of WAL, drained in bounded runs: time and memory of the last ones against the first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import mean
from typing import TYPE_CHECKING

import psycopg

from benchmarks.following import check_equal
from benchmarks.measurement import Measurement, peak_memory, timed
from benchmarks.workload import Size, make_table
from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.configuration import Pipeline, WindowLimits
from spark_jobs.postgres.connection import connected
from spark_jobs.postgres.slot import readable_slot
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.sync import apply, capture, sync

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BYTES_OF_A_UNIT = 20_000
_WINDOW, _WINDOWS_OF_A_RUN = 64 << 20, 4
_TENTHS = 10


@dataclass(frozen=True)
class _Run:
    """One capture and apply: its windows, WAL ``bytes``, how far behind it the slot's ``restart_lsn`` was (from where
    the server decodes with every call), seconds for each, and the most that driver and JVM held."""

    windows: int
    bytes: int
    held: int
    landing: float
    applying: float
    driver: int
    jvm: int


def measure_drain(server: PostgresServer, pipeline: Pipeline, spark: SparkSession, size: Size) -> Iterator[Measurement]:
    """``pipeline`` follows one table, which is made now. The first third of the runs against the last one."""
    assert pipeline.tables is not None
    table, engine = pipeline.tables[0].name, pipeline.merge_engine
    pipeline = replace(pipeline, windows=WindowLimits(max_bytes=_WINDOW, max_per_run=_WINDOWS_OF_A_RUN))
    make_table(server, table, size.rows)
    for error in sync(pipeline, lambda: spark).errors:
        raise error
    _make_backlog(server, table, size.unit * _BYTES_OF_A_UNIT)
    runs = list(_runs(pipeline, spark))
    check_equal(spark, pipeline, table)
    # the last run takes what is left over
    whole = [run for run in runs if run.windows == _WINDOWS_OF_A_RUN]
    third = max(1, len(whole) // 3)
    first, last = whole[:third], whole[-third:]
    total, seconds = sum(run.bytes for run in runs), sum(run.landing + run.applying for run in runs)
    yield Measurement(f"backlog of {total >> 20:,} MiB drained in {len(runs)} runs, {engine}", seconds)
    for part in ("landing", "applying"):
        ratio = mean(_pace(run, part) for run in first) / mean(_pace(run, part) for run in last)
        yield Measurement(f"{part}: seconds per byte of the first runs, against the last, {engine}", None, None, ratio)
    wal = max(run.held for run in runs)
    yield Measurement("WAL that the server decoded again for a window, at most", mebibytes=wal / (1 << 20))
    for name, runs_of in (("first", first), ("last", last)):
        yield Measurement(
            f"peak memory of driver, {name} runs, {engine}", mebibytes=max(run.driver for run in runs_of) / (1 << 20)
        )
        yield Measurement(
            f"peak memory of JVM, {name} runs, {engine}", mebibytes=max(run.jvm for run in runs_of) / (1 << 20)
        )


def _pace(run: _Run, part: str) -> float:
    return float(getattr(run, part)) / run.bytes


def _make_backlog(server: PostgresServer, table: QualifiedName, wal_bytes: int) -> None:
    """Updates of a tenth of the rows after the other, until there is so much WAL."""
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        ((begin,),) = connection.execute("SELECT pg_current_wal_lsn()").fetchall()
        turn, written = 0, 0
        while written < wal_bytes:
            connection.execute(f"UPDATE {table} SET n = n + 1, paid = NOT paid WHERE id % {_TENTHS} = {turn % _TENTHS}")
            ((written,),) = connection.execute("SELECT pg_current_wal_lsn() - %s::pg_lsn", [begin]).fetchall()
            turn += 1


def _runs(pipeline: Pipeline, spark: SparkSession) -> Iterator[_Run]:
    """Until the log and the table have it all."""
    caught_up = False
    while not caught_up:
        with peak_memory() as peak:
            captured, landing = timed(lambda: capture(pipeline))
            report, applying = timed(lambda: apply(Run(pipeline, lambda: spark)))
        for error in report.errors:
            raise error
        caught_up = captured.caught_up
        size = sum(marker.window.size for marker in captured.landed)
        if size:
            yield _Run(len(captured.landed), size, _held(pipeline), landing, applying, peak.driver, peak.jvm)


def _held(pipeline: Pipeline) -> int:
    with connected(pipeline.source.dsn) as connection:
        status = readable_slot(connection, pipeline.source.slot)
    assert status is not None
    assert status.restart_lsn is not None
    return status.lsn - status.restart_lsn
