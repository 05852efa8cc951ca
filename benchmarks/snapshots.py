"""Snapshots of a table, of one with ten times its rows and of one with twenty: speed against COPY, and memory, which
must not grow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.measurement import Measurement, median_of, peak_memory, timed
from benchmarks.workload import Size, copy_out, make_table
from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.configuration import Pipeline
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.sync import prepare, snapshot
from spark_jobs.verify.compare_table import Thoroughness
from spark_jobs.verify.verify import verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REPEATS = 3
_MIB = 1 << 20


def measure_snapshots(
    server: PostgresServer,
    pipeline_of: Callable[[str, tuple[QualifiedName, ...]], Pipeline],
    spark: SparkSession,
    size: Size,
) -> Iterator[Measurement]:
    """Without Spark. Each ends in a comparison by hashes, which needs no memory for the rows."""
    for rows in (size.rows, 10 * size.rows, 20 * size.rows):
        table = QualifiedName("public", f"snapshot_{rows}")
        make_table(server, table, rows)
        pipeline = replace(pipeline_of(table.relname, (table,)), merge_engine="auto")
        prepare(pipeline)
        limit = median_of(_REPEATS, partial(copy_out, server, table))
        with peak_memory() as peak:
            (outcome,), seconds = timed(partial(snapshot, Run(pipeline, lambda: spark)))
        if outcome.error is not None:
            raise outcome.error
        what = f"snapshot of {rows:,} rows, without Spark"
        yield Measurement(f"{what} (of COPY TO STDOUT)", seconds, rows, limit / seconds)
        for name, memory in (("driver", peak.driver), ("JVM", peak.jvm), ("Python workers", peak.workers)):
            yield Measurement(f"{what}: {name}", mebibytes=memory / _MIB)
        (verified,) = verify(pipeline, lambda: spark, how=Thoroughness(quick=True)).tables
        if verified.problem is not None:
            raise AssertionError(verified.problem)
