"""Snapshot, capture, decode and apply of the mixed table, against what the server alone can do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pyarrow as pa

from benchmarks.held_columns import held_columns
from benchmarks.measurement import Measurement, median_of, timed
from benchmarks.sync_process import sync_alone
from benchmarks.workload import MIXED, Size, copy_out, make_changes
from cdc_assets.configuration.load_pipeline import load_pipeline
from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.apply.apply import apply
from spark_jobs.apply.landed_changes import LandedChanges, landed_changes
from spark_jobs.apply.net_change.net_change import net_change
from spark_jobs.apply.table_range import TableRange
from spark_jobs.capture.capture import capture
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.configuration import MergeEngine, Pipeline
from spark_jobs.decode.ordered_changes import OrderedChanges
from spark_jobs.lake.table_state import table_state
from spark_jobs.prepare import prepare
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.snapshot.snapshot import snapshot
from tests.fixtures.no_spark import no_spark
from tests.fixtures.row_compare import compare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHUNK = 50_000  # messages decoded at once
_REPEATS = 3
_END_TO_END: dict[MergeEngine, float] = {"spark": 0.12, "auto": 0.17}  # of the server's speed
_ENGINES: tuple[tuple[str, MergeEngine], ...] = (
    ("first of its size", "spark"),
    ("again", "spark"),
    ("without Spark", "auto"),
)


def measure_following(
    server: PostgresServer, pipeline: Pipeline, spark: SparkSession, size: Size
) -> Iterator[Measurement]:
    """All stages in order, on one table; ends with the row-by-row comparison, so that fast and wrong cannot be."""
    yield from _snapshot(server, pipeline, spark, size)
    # the first large write of a session also pays for the JVM's warming
    for times, engine in _ENGINES:
        make_changes(server, size)
        yield from _changes(server, replace(pipeline, merge_engine=engine), spark, size, times)
        check_equal(spark, pipeline, MIXED)


def measure_alone(server: PostgresServer, configuration: Path, size: Size) -> Iterator[Measurement]:
    """The same changes once more, by ``postgres-cdc sync`` in a process of its own: its memory is the product's. This
    process also has what it compared with the source."""
    pipeline = load_pipeline(configuration)
    assert pipeline.tables is not None
    table, engine = pipeline.tables[0].name, pipeline.merge_engine
    make_changes(server, size, table)
    seconds, peak = sync_alone(configuration, may_start_jvm=engine != "auto")
    for process, peak_bytes in (("driver", peak.driver), ("JVM", peak.jvm), ("Python workers", peak.workers)):
        what = f"sync of {table.relname} as a process, {engine}: peak memory of {process}"
        yield Measurement(what, seconds, size.changes, mebibytes=peak_bytes / (1 << 20))


def check_equal(spark: SparkSession, pipeline: Pipeline, table: QualifiedName) -> None:
    """Raise AssertionError when source and lake differ in a row or a value."""
    (same,) = compare(spark, pipeline, (table,))
    if not same.equal or not same.lake_rows:
        raise AssertionError(f"source and lake differ: {same}")


def _snapshot(server: PostgresServer, pipeline: Pipeline, spark: SparkSession, size: Size) -> Iterator[Measurement]:
    limit = median_of(_REPEATS, lambda: copy_out(server, MIXED))
    yield Measurement("COPY TO STDOUT (limit of snapshots)", limit, size.rows, 1.0)
    prepare(pipeline)
    # the first large write of a session also pays for the JVM's warming; the target is for this process
    for times, engine in _ENGINES:
        run = Run(replace(pipeline, merge_engine=engine), lambda: spark)
        (outcome,), seconds = timed(partial(snapshot, run))
        if outcome.error is not None:
            raise outcome.error
        target = 0.2 if engine == "auto" else None
        yield Measurement(f"snapshot into Delta, {times}", seconds, size.rows, limit / seconds, at_least=target)


def _changes(
    server: PostgresServer, pipeline: Pipeline, spark: SparkSession, size: Size, times: str
) -> Iterator[Measurement]:
    limit = median_of(_REPEATS, lambda: peek(server, pipeline))
    yield Measurement(f"the server's decoding (limit), {times}", limit, size.changes, 1.0)
    _, captured = timed(lambda: capture(pipeline))
    yield Measurement("capture and land", captured, size.changes, limit / captured, at_least=0.4)
    yield from _decoding(pipeline, size, limit)
    report, applied = timed(lambda: apply(Run(pipeline, lambda: spark)))
    for error in report.errors:
        raise error
    if pipeline.merge_engine == "auto" and any(table.engine != "deltalake" for table in report.tables):
        raise AssertionError("Spark has written what was to be written without it")
    yield Measurement("net change and apply", applied, size.changes, limit / applied)
    total = captured + applied
    at_least = _END_TO_END[pipeline.merge_engine]
    yield Measurement(f"end to end, {times}", total, size.changes, limit / total, at_least=at_least)


def _decoding(pipeline: Pipeline, size: Size, limit: float) -> Iterator[Measurement]:
    """What it has read is freed before anything is applied."""
    log = ChangeLog(pipeline.lake.change_log)
    landed, read = timed(lambda: _landed(pipeline, log))
    yield Measurement("read from the log", read, size.changes, limit / read)
    threads = pa.cpu_count()
    pa.set_cpu_count(1)
    _, decoded = timed(lambda: _decode(landed))
    yield Measurement("decode, one core", decoded, size.changes, limit / decoded, at_least=1.5)
    _, netted = timed(lambda: net_change(landed.rows, landed.rules))
    yield Measurement("decode, net change and cast, one core", netted, size.changes, limit / netted)
    pa.set_cpu_count(threads)


def peek(server: PostgresServer, pipeline: Pipeline) -> None:
    """The least that changes cost: the server decodes all that the slot has, and counts the messages."""
    with psycopg.connect(server.dsn()) as connection:
        connection.execute(
            "SELECT count(*) FROM pg_logical_slot_peek_binary_changes(%s, NULL, NULL, 'proto_version', '1',"
            " 'publication_names', %s)",
            [pipeline.source.slot, pipeline.source.publication],
        )


def _landed(pipeline: Pipeline, log: ChangeLog) -> LandedChanges:
    last = log.checkpoint()
    assert last is not None
    state = table_state(pipeline.lake, MIXED, last.identity)
    assert state is not None
    relid = next(c.relid for marker in log.markers() for c in marker.relations if c.relname == MIXED.relname)
    landed = landed_changes(
        TableRange(Run(pipeline, no_spark), state, log.markers(state.ordinal)), held_columns(log, relid)
    )
    assert landed is not None
    return landed


def _decode(landed: LandedChanges) -> None:
    for start in range(0, landed.rows.num_rows, _CHUNK):
        OrderedChanges.of(landed.rows.slice(start, _CHUNK), landed.rules.relations, landed.shape)
