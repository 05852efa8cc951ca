"""The mixed changes into a table ten times as large: a tenth of its rows changes, so most of the time is not theirs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.end_to_end import measure_end_to_end
from benchmarks.following import measure_alone
from benchmarks.measurement import Measurement
from benchmarks.workload import Size, make_changes, make_table
from cdc_assets.configuration.load_pipeline import load_pipeline
from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.configuration import Pipeline
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.sync import sync
from spark_jobs.verify.verify import verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TIMES = 10  # the rows of the mixed table


def measure_large_table(
    server: PostgresServer, configuration: Path, spark: SparkSession, size: Size
) -> Iterator[Measurement]:
    """The pipeline follows one table, which is made now."""
    pipeline = load_pipeline(configuration)
    assert pipeline.tables is not None
    table, engine = pipeline.tables[0].name, pipeline.merge_engine
    make_table(server, table, _TIMES * size.rows)
    for error in sync(pipeline, lambda: spark).errors:
        raise error
    for times in ("first", "again"):
        make_changes(server, size, table)
        what = f"changes into {_TIMES * size.rows:,} rows, {engine}, {times}"
        yield from measure_end_to_end(server, pipeline, spark, table, size, what, check=_verify)
    yield from measure_alone(server, configuration, size)
    _verify(spark, pipeline, table)


def _verify(spark: SparkSession, pipeline: Pipeline, table: QualifiedName) -> None:
    """All rows and columns, on executors: too many for the driver's memory."""
    (compared,) = verify(pipeline, lambda: spark).tables
    if compared.problem is not None:
        raise AssertionError(compared.problem)
    if compared.name != table or not compared.counts.source_rows:
        raise AssertionError(f"nothing of {table} was compared")
