"""Source and lake proved equal at one LSN: every row, by hashes, and a sample, against COPY of the same table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.measurement import Measurement, median_of, timed
from benchmarks.workload import MIXED, copy_out, make_table
from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.configuration import Pipeline
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.sync import sync
from spark_jobs.verify.compare_table import Thoroughness
from spark_jobs.verify.verify import verify
from tests.fixtures.no_spark import no_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REPEATS = 3
_MANY, _ROWS = 500, 1000
_WAYS = (
    ("every row and column, first", Thoroughness()),
    ("every row and column, again", Thoroughness()),
    ("by hashes, first", Thoroughness(quick=True)),
    ("by hashes, again", Thoroughness(quick=True)),
    ("a sample of 1%", Thoroughness(sample=0.01)),
)


def measure_verify(server: PostgresServer, pipeline: Pipeline, spark: SparkSession) -> Iterator[Measurement]:
    """The table is followed, and caught up. Raises AssertionError where it is not equal."""
    limit = median_of(_REPEATS, lambda: copy_out(server, MIXED))
    for way, how in _WAYS:
        report, seconds = timed(partial(verify, pipeline, lambda: spark, how=how))
        (table,) = report.tables
        if table.problem is not None:
            raise AssertionError(table.problem)
        yield Measurement(f"verify, {way} (of COPY TO STDOUT)", seconds, table.counts.source_rows, limit / seconds)


def measure_verify_many(
    server: PostgresServer, pipeline_of: Callable[[str, tuple[QualifiedName, ...]], Pipeline]
) -> Iterator[Measurement]:
    """Hundreds of small tables, all without Spark. ``pipeline_of`` makes a pipeline of that name over those tables."""
    tables = tuple(QualifiedName("public", f"verified_{n}") for n in range(_MANY))
    for table in tables:
        make_table(server, table, _ROWS)
    pipeline = replace(pipeline_of("verified", tables), merge_engine="auto")
    if errors := sync(pipeline, no_spark).errors:
        raise errors[0]
    report, took = timed(lambda: verify(pipeline, no_spark))
    if report.problems:
        raise report.problems[0]
    rows = sum(table.counts.source_rows for table in report.tables)
    yield Measurement(f"verify, tables of {_ROWS:,} rows: {_MANY}, auto", took, rows, at_most=60.0)
