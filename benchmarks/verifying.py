"""Source and lake proved equal at one LSN: every row, by hashes, and a sample, against COPY of the same table."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.measurement import Measurement, median_of, timed
from benchmarks.workload import MIXED, copy_out
from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.configuration import Pipeline
from spark_jobs.verify.verify import Thoroughness, verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REPEATS = 3
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
