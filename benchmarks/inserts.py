"""Inserts alone, which are appended: nothing of the table is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from benchmarks.end_to_end import measure_end_to_end
from benchmarks.measurement import Measurement
from benchmarks.workload import Size, make_inserts, make_table
from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.configuration import Pipeline
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.sync import sync

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INSERTED = QualifiedName("public", "inserted")
_AT_LEAST = 0.25  # of the server's speed
_RUNS = ("first", "again")


def measure_inserts(
    server: PostgresServer, pipeline: Pipeline, spark: SparkSession, size: Size
) -> Iterator[Measurement]:
    """``pipeline`` follows ``INSERTED``, which is made here."""
    make_table(server, INSERTED, size.rows)
    for error in sync(pipeline, lambda: spark).errors:
        raise error
    for times in _RUNS:
        make_inserts(server, size, INSERTED)
        yield from measure_end_to_end(server, pipeline, spark, INSERTED, size, f"inserts, {times}", at_least=_AT_LEAST)
