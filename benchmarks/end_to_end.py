"""Changes of one table captured and applied, against the time in which the server alone decodes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from benchmarks.following import check_equal, peek
from benchmarks.measurement import Measurement, median_of, timed
from benchmarks.workload import Size
from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.apply.apply import apply
from spark_jobs.capture.capture import capture
from spark_jobs.configuration import Pipeline
from spark_jobs.delta.table import open_table
from spark_jobs.delta.transaction_log import TransactionLog
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REPEATS = 3


def measure_end_to_end(
    server: PostgresServer,
    pipeline: Pipeline,
    spark: SparkSession,
    table: QualifiedName,
    size: Size,
    what: str,
    *,
    at_least: float | None = None,
    check: Callable[[SparkSession, Pipeline, QualifiedName], None] = check_equal,
) -> Iterator[Measurement]:
    """9 units of changes were made since the pipeline's last run; ends with ``check``, a comparison of all rows. The
    files read are those that the commit removed, or gave a deletion vector."""
    limit = median_of(_REPEATS, lambda: peek(server, pipeline))
    yield Measurement(f"{what}: the server's decoding (limit)", limit, size.changes, 1.0)
    _, captured = timed(lambda: capture(pipeline))
    path = pipeline.lake.table(table)
    delta_table = open_table(path, path)
    assert delta_table is not None
    files = pa.table(delta_table.get_add_actions()).num_rows
    report, applied = timed(lambda: apply(Run(pipeline, lambda: spark)))
    for error in report.errors:
        raise error
    check(spark, pipeline, table)
    (outcome,) = report.tables
    how = f"{outcome.strategy} by {outcome.engine}"
    yield Measurement(f"{what}: capture and land", captured, size.changes, limit / captured)
    yield Measurement(f"{what}: net change and apply ({how})", applied, size.changes, limit / applied)
    yield Measurement(
        f"{what}: end to end", captured + applied, size.changes, limit / (captured + applied), at_least=at_least
    )
    assert outcome.delta_version is not None
    removed = list(next(TransactionLog.of_version(path, outcome.delta_version).commits()).actions("remove"))
    mebibytes = sum(each.get("size", 0) for each in removed) / (1 << 20)
    yield Measurement(f"{what}: files read ({len(removed)} of {files})", mebibytes=mebibytes)
