"""A process that keeps tables open, and what others do to them between two syncs. The source is the oracle."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest

from spark_jobs.configuration import Lake, Pipeline
from spark_jobs.delta.written_tables import WrittenTables
from spark_jobs.maintain.maintain import maintain
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.recover import recover
from spark_jobs.run import Run
from spark_jobs.snapshot.snapshot import snapshot
from spark_jobs.sync import sync
from tests.at_night import at_night
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.row_compare import compare
from tests.fixtures.servers import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

NAME = QualifiedName("public", "item")
Between: TypeAlias = "Callable[[SparkSession, Pipeline, Database], None]"


def _optimize(spark: SparkSession, pipeline: Pipeline, _: Database) -> None:
    spark.sql(f"OPTIMIZE delta.`{pipeline.lake.table(NAME)}`")


def _maintain(spark: SparkSession, pipeline: Pipeline, _: Database) -> None:
    assert not maintain(pipeline, lambda: spark).errors


def _snapshot(spark: SparkSession, pipeline: Pipeline, _: Database) -> None:
    assert [taken.error for taken in snapshot(Run(pipeline, lambda: spark))] == [None]


def _delete(_: SparkSession, pipeline: Pipeline, __: Database) -> None:
    shutil.rmtree(pipeline.lake.table(NAME))


def _put_back(spark: SparkSession, pipeline: Pipeline, database: Database) -> None:
    """An older copy; ``commits`` went on meanwhile."""
    path = Path(pipeline.lake.table(NAME))
    shutil.copytree(path, path.with_name("copy"))
    _change(database)
    _sync(pipeline, spark)
    shutil.rmtree(path)
    path.with_name("copy").rename(path)


def _by_spark(spark: SparkSession, pipeline: Pipeline, database: Database) -> None:
    _change(database)
    _sync(replace(pipeline, merge_engine="spark"), spark)


def _by_another_process(spark: SparkSession, pipeline: Pipeline, database: Database) -> None:
    """It changes log, table and cuts, and knows nothing of what this one keeps."""
    other = replace(pipeline, lake=Lake(pipeline.lake.path))
    for _ in range(3):
        _change(database)
        _sync(other, spark)


def _columns(_: SparkSession, __: Pipeline, database: Database) -> None:
    database.execute("ALTER TABLE item ADD w int DEFAULT 5", "ALTER TABLE item RENAME v TO u")


def _new_chapter(spark: SparkSession, pipeline: Pipeline, database: Database) -> None:
    database.execute(f"SELECT pg_drop_replication_slot('{pipeline.source.slot}')")
    _change(database)
    recover(pipeline, lambda: spark)


def _no_cuts(_: SparkSession, pipeline: Pipeline, __: Database) -> None:
    shutil.rmtree(pipeline.lake.cuts)


def _change(database: Database) -> None:
    database.execute(
        "UPDATE item SET n = n + 1 WHERE id % 3 = (SELECT max(n) % 3 FROM item)",
        "DELETE FROM item WHERE id = (SELECT min(id) FROM item)",
        "INSERT INTO item (id, n) SELECT max(id) + 1, 0 FROM item",
    )


def _sync(pipeline: Pipeline, spark: SparkSession) -> set[str | None]:
    """Returns the engines that wrote."""
    report = sync(pipeline, lambda: spark)
    assert report.errors == ()
    return {applied.engine for applied in report.tables if applied.engine}


@pytest.mark.parametrize(
    "between",
    [
        at_night(_optimize),
        _maintain,
        _snapshot,
        _delete,
        _put_back,
        at_night(_by_spark),
        _by_another_process,
        at_night(_columns),
        _new_chapter,
        _no_cuts,
    ],
)
def test_what_others_did_between_two_syncs(
    spark: SparkSession, database: Database, tmp_path: Path, between: Between
) -> None:
    database.execute(
        "CREATE TABLE item (id int PRIMARY KEY, n int, v text)",
        "INSERT INTO item SELECT g, 0, 'v' || g FROM generate_series(1, 20) g",
    )
    pipeline = pipeline_of(database, tmp_path / "lake", "public.item")
    pipeline = replace(pipeline, retention=replace(pipeline.retention, cuts=timedelta(0)))
    _sync(pipeline, spark)
    for _ in range(2):
        _change(database)
        assert _sync(pipeline, spark) == {"deltalake"}
    assert pipeline.lake.table(NAME) in pipeline.lake.storage.memory(WrittenTables), "or else nothing is tested here"
    between(spark, pipeline, database)
    for _ in range(2):
        _change(database)
        _sync(pipeline, spark)
        (compared,) = compare(spark, pipeline, (NAME,))
        assert compared.equal, compared
    _change(database)
    assert _sync(pipeline, spark) == {"deltalake"}
    (compared,) = compare(spark, pipeline, (NAME,), by_spark=True)
    assert compared.equal, compared
