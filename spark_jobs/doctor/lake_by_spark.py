"""On request: the lake's path through Spark, whose commits must not replace those that are made without it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
from deltalake import write_deltalake

from spark_jobs.configuration import Lake
from spark_jobs.delta.files import files_below, remove_empty_folders
from spark_jobs.delta.table import table_errors
from spark_jobs.delta.whole_files import delete_files
from spark_jobs.doctor.checks import Check, fail, ok, warn
from spark_jobs.errors import CdcError
from spark_jobs.object_stores import storage_options, store_of
from spark_jobs.spark.errors import spark_errors
from spark_jobs.spark.provider import SparkProvider
from spark_jobs.storage import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AREA = "spark"
WRITES, COMMITS = "lake.path through Spark", "commits of Spark"
_COMMITS = 5  # of each of the two


def lake_checks_by_spark(lake: Lake, spark: SparkProvider) -> Iterator[Check]:
    """A small table, which Spark and this process write at the same time, and which is removed again."""
    table = lake.root / f"postgres-cdc-doctor-{uuid4().hex}"
    try:
        session = spark()
        with spark_errors(f"{lake.path} cannot be written by Spark", path=table):
            rows = _written_by_both(session, table)
            yield ok(AREA, WRITES, f"{lake.path} is written and read")
            yield _commits(session, lake.root, rows)
    except CdcError as error:
        yield fail(AREA, WRITES, error.what, error.hint)
    finally:
        yield from _removed(table)


def _written_by_both(session: SparkSession, table: Location) -> int:
    """How many of the rows are there afterwards: each commit adds one."""
    _append_by_spark(session, table, 0)
    numbers = range(1, 2 * _COMMITS, 2)
    with ThreadPoolExecutor(max_workers=1) as ours:
        written = ours.submit(_append, table, numbers)
        for number in numbers:
            _append_by_spark(session, table, number + 1)
        written.result()
    return session.read.format("delta").load(table).count()


def _append_by_spark(session: SparkSession, table: Location, number: int) -> None:
    session.range(number, number + 1).coalesce(1).write.format("delta").mode("append").save(table)


def _append(table: Location, numbers: Sequence[int]) -> None:
    with table_errors(f"{table} cannot be written"):
        for number in numbers:
            rows = pa.table({"id": pa.array([number], pa.int64())})
            write_deltalake(table, rows, mode="append", storage_options=storage_options(table))


def _commits(session: SparkSession, path: Location, rows: int) -> Check:
    store, scheme = store_of(path), path.partition("://")[0]
    setting = f"spark.delta.logStore.{scheme}.impl"
    remedy = f"set {setting} for each Spark that writes there (docs/object-stores.md, two writers)"
    if (lost := 2 * _COMMITS + 1 - rows) > 0:
        what = f"{lost} of {2 * _COMMITS + 1} commits are lost if Spark and this process write at the same time"
        return fail(AREA, COMMITS, what, remedy)
    if store is not None and store.log_store and session.conf.get(setting, None) != store.log_store:
        return warn(AREA, COMMITS, f"not conditional on {scheme}://: one may replace another writer's", remedy)
    return ok(AREA, COMMITS, f"{_COMMITS} of Spark's and {_COMMITS} of ours at the same time: all are there")


def _removed(table: Location) -> Iterator[Check]:
    """A check only if it fails."""
    try:
        delete_files(table, [file.name for file in files_below(table)])
        remove_empty_folders(table)
    except CdcError as error:
        yield fail(AREA, WRITES, error.what, error.hint)
