"""Every change of a table as a row of its own: 9 units of changes read from the log, by this process and by Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from benchmarks.following import peek
from benchmarks.measurement import Measurement, median_of
from benchmarks.workload import Size, make_changes, make_table
from cdc_assets.changes_source import FORMAT, ChangesSource
from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.capture.capture import capture
from spark_jobs.configuration import Pipeline
from spark_jobs.logged_changes.changes import changes
from spark_jobs.prepare import prepare
from spark_jobs.qualified_name import QualifiedName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

READ = QualifiedName("public", "changes_read")
_REPEATS = 3


def measure_changes_read(
    server: PostgresServer, pipeline: Pipeline, spark: SparkSession, size: Size
) -> Iterator[Measurement]:
    """In Arrow and in Spark, against the server's own decoding."""
    make_table(server, READ, size.rows)
    prepare(pipeline)
    make_changes(server, size, READ)
    limit = median_of(_REPEATS, lambda: peek(server, pipeline))
    capture(pipeline)
    spark.dataSource.register(ChangesSource)
    frame = spark.read.format(FORMAT).options(path=pipeline.lake.path, table=str(READ))

    def in_arrow() -> int:
        return sum(batch.num_rows for batch in changes(pipeline, READ))

    def in_spark() -> int:
        # every column is read: a count alone would read none
        return int(frame.load().selectExpr("count(struct(*))").collect()[0][0])

    for stage, read in (("changes read in Arrow", in_arrow), ("changes read in Spark", in_spark)):
        if (count := read()) != size.changes:
            raise AssertionError(f"{count} changes were read")
        seconds = median_of(_REPEATS, read)
        yield Measurement(stage, seconds, size.changes, limit / seconds, at_least=0.4)
