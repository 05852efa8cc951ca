"""What was deleted at the source leaves the storage: rows behind deletion vectors, and dropped columns."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from spark_jobs.configuration import Retention
from spark_jobs.maintain.maintain import maintain
from spark_jobs.options.write_limits import WriteLimits
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.sync import sync
from spark_jobs.writers.with_arrow.plain_table import plain_table
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database
from tests.spark.followed_pipeline import Followed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

PERSON = QualifiedName("public", "person")
MADE = (
    "CREATE TABLE person (id int PRIMARY KEY, email text, secret text)",
    "INSERT INTO person SELECT g, md5(g::text), 'dropped canary' FROM generate_series(1, 300) g",
    "UPDATE person SET email = 'deleted canary' WHERE id = 77",
)


def test_a_canary_leaves_the_storage(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    database.execute(*MADE)
    made = pipeline_of(database, tmp_path / "lake", "public.person", engine="spark")
    pipeline = replace(made, writes=WriteLimits(whole_files_bytes=0))  # of small tables, too, rows are hidden
    followed = Followed(spark, database, pipeline, (PERSON,))
    path = Path(pipeline.lake.table(PERSON))

    def synced() -> None:
        assert sync(pipeline, lambda: spark).errors == ()
        followed.assert_equal()

    def maintained(cuts: timedelta) -> bool:
        assert plain_table(pipeline.lake.table(PERSON)) is None, "Spark is to maintain it"
        report = maintain(replace(pipeline, retention=Retention(cuts=cuts)), lambda: spark)
        assert report.errors == ()
        (table,) = report.tables
        assert table.files is not None
        followed.assert_equal()
        return table.files.purged

    synced()
    database.execute("DELETE FROM person WHERE id = 77", "ALTER TABLE person DROP secret")
    database.execute("INSERT INTO person VALUES (100000, 'new')")
    synced()
    assert list(path.glob("**/deletion_vector*")), "rows were to be hidden, not rewritten"
    assert holding(path) == {"deleted canary", "dropped canary"}
    assert not maintained(timedelta(days=30)), "from here on the time counts"
    assert not maintained(timedelta(days=30))
    assert holding(path) == {"deleted canary", "dropped canary"}, "older versions can still be read"
    assert list(path.glob("**/deletion_vector*")), "they hide rows of the newest version"

    before = DeltaTable(str(path)).version()
    assert maintained(timedelta(0))
    assert holding(path) == set()
    assert DeltaTable(str(path)).version() > before
    database.execute("UPDATE person SET email = 'changed' WHERE id < 10", "DELETE FROM person WHERE id = 10")
    synced()


def holding(path: Path) -> set[str]:
    """Which of the canaries the data files hold, whatever deletion vectors and the table\'s schema say of it."""
    values: set[object] = set()
    for file in path.glob("**/*.parquet"):
        if "_delta_log" not in file.parts:
            for column in pq.read_table(file).columns:
                values.update(column.unique().to_pylist())
    return {str(value) for value in values if "canary" in str(value)}
