"""Snapshots of a table, of one with ten times its rows and of one with twenty: speed against COPY, and memory, which
must not grow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measurement import Measurement, median_of, timed
from benchmarks.sync_process import sync_alone
from benchmarks.workload import Size, copy_out, make_table
from cdc_assets.configuration.load_pipeline import load_pipeline
from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.prepare import prepare
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.snapshot.snapshot import snapshot
from spark_jobs.verify.compare_table import Thoroughness
from spark_jobs.verify.verify import verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REPEATS = 3
_MIB = 1 << 20


def measure_snapshots(
    server: PostgresServer,
    configuration_of: Callable[[str, tuple[QualifiedName, ...]], Path],
    spark: SparkSession,
    size: Size,
) -> Iterator[Measurement]:
    """Without Spark: the speed in this process, then the memory of a ``sync`` in a process of its own. Each ends in a
    comparison by hashes, which needs no memory for the rows."""
    for rows in (size.rows, 10 * size.rows, 20 * size.rows):
        table = QualifiedName("public", f"snapshot_{rows}")
        make_table(server, table, rows)
        pipeline = load_pipeline(configuration_of(table.relname, (table,)))
        prepare(pipeline)
        limit = median_of(_REPEATS, partial(copy_out, server, table))
        (outcome,), seconds = timed(partial(snapshot, Run(pipeline, lambda: spark)))
        if outcome.error is not None:
            raise outcome.error
        what = f"snapshot of {rows:,} rows, without Spark"
        yield Measurement(f"{what} (of COPY TO STDOUT)", seconds, rows, limit / seconds)
        seconds, peak = sync_alone(configuration_of(f"{table.relname}_alone", (table,)), may_start_jvm=False)
        yield Measurement(f"{what}: peak memory of a sync as a process", seconds, mebibytes=peak.driver / _MIB)
        (verified,) = verify(pipeline, lambda: spark, how=Thoroughness(quick=True)).tables
        if verified.problem is not None:
            raise AssertionError(verified.problem)
