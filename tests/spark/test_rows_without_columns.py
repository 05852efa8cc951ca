"""Rows that are written while their table has no column: what they hold once it has some again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.apply.apply import apply
from spark_jobs.capture.capture import capture
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.configuration import Table
from spark_jobs.options.table_mode import Mode
from spark_jobs.options.write_limits import WriteLimits
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.sync import sync
from tests.at_night import at_night
from tests.fixtures.no_spark import no_spark
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database
from tests.spark.followed_pipeline import Followed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

NAME = QualifiedName("public", "s")
# what is done to ``s (a int)``, which has three rows and sends whole rows
WITHOUT_COLUMNS: dict[str, tuple[str, ...]] = {
    "inserted": (
        "ALTER TABLE s DROP COLUMN a",
        "INSERT INTO s DEFAULT VALUES",
        "ALTER TABLE s ADD COLUMN b int DEFAULT 7",
        "INSERT INTO s VALUES (8)",
    ),
    "without a default": (
        "ALTER TABLE s DROP COLUMN a",
        "INSERT INTO s DEFAULT VALUES",
        "ALTER TABLE s ADD COLUMN b int",
        "INSERT INTO s VALUES (8)",
    ),
    "deleted": (
        "ALTER TABLE s DROP COLUMN a",
        "INSERT INTO s DEFAULT VALUES",
        "DELETE FROM s WHERE ctid = '(0,1)'",
        "ALTER TABLE s ADD COLUMN b int DEFAULT 7",
        "DELETE FROM s WHERE ctid = '(0,2)'",
    ),
    "all deleted": ("ALTER TABLE s DROP COLUMN a", "DELETE FROM s", "ALTER TABLE s ADD COLUMN b int DEFAULT 7"),
    "truncated": (
        "ALTER TABLE s DROP COLUMN a",
        "TRUNCATE s",
        "INSERT INTO s DEFAULT VALUES",
        "ALTER TABLE s ADD COLUMN b text DEFAULT 'x', ADD COLUMN c int",
        "INSERT INTO s VALUES ('y', 1)",
    ),
    "twice": (
        "ALTER TABLE s DROP COLUMN a",
        "INSERT INTO s DEFAULT VALUES",
        "ALTER TABLE s ADD COLUMN a int DEFAULT 7",
        "INSERT INTO s VALUES (8)",
        "ALTER TABLE s DROP COLUMN a",
        "INSERT INTO s DEFAULT VALUES",
        "ALTER TABLE s ADD COLUMN b int DEFAULT 9",
        "INSERT INTO s VALUES (10)",
    ),
    "columns beside it meanwhile": (
        "ALTER TABLE s DROP COLUMN a",
        "INSERT INTO s DEFAULT VALUES",
        "ALTER TABLE s ADD COLUMN b int DEFAULT 7",
        "INSERT INTO s VALUES (8)",
        "ALTER TABLE s ADD COLUMN c text DEFAULT 'later'",
        "INSERT INTO s VALUES (9, 'own')",
        "ALTER TABLE s RENAME b TO a",
    ),
}


def followed_rows(
    spark: SparkSession, database: Database, lake: Path, plugin: str = "pgoutput", mode: Mode = "mirror"
) -> Followed:
    database.execute(
        "CREATE TABLE s (a int)", "ALTER TABLE s REPLICA IDENTITY FULL", "INSERT INTO s SELECT generate_series(1, 3)"
    )
    pipeline = replace(pipeline_of(database, lake, plugin=plugin), tables=(Table(NAME, mode=mode),))
    followed = Followed(spark, database, pipeline, (NAME,))
    assert sync(pipeline, lambda: spark).errors == ()
    return followed


@pytest.mark.parametrize(
    ("what", "plugin"),
    [
        ("columns beside it meanwhile", "pgoutput"),
        at_night("truncated", "pgoutput"),
        at_night("all deleted", "pgoutput"),
        ("deleted", "test_decoding"),
    ],
)
def test_in_one_window(spark: SparkSession, database: Database, tmp_path: Path, what: str, plugin: str) -> None:
    followed = followed_rows(spark, database, tmp_path / "lake", plugin)
    database.execute(*WITHOUT_COLUMNS[what])
    assert sync(followed.pipeline, lambda: spark).errors == ()
    followed.assert_equal()


@pytest.mark.parametrize(
    ("what", "on_driver_bytes"),
    [("without a default", WriteLimits.on_driver_bytes), at_night("inserted", 0)],
    ids=["on the driver", "on executors"],
)
def test_in_one_transaction_without_another_snapshot(
    spark: SparkSession, database: Database, tmp_path: Path, what: str, on_driver_bytes: int
) -> None:
    followed = followed_rows(spark, database, tmp_path / "lake")
    database.execute("; ".join(WITHOUT_COLUMNS[what]))
    (applied,) = replace(followed, on_driver_bytes=on_driver_bytes).sync()
    assert applied.error is None
    followed.assert_equal()


@pytest.mark.parametrize(
    ("what", "plugin"),
    [("deleted", "pgoutput"), at_night("twice", "pgoutput"), at_night("inserted", "test_decoding")],
)
def test_each_statement_in_a_window_that_is_applied_by_itself(
    spark: SparkSession, database: Database, tmp_path: Path, what: str, plugin: str
) -> None:
    """As Dagster does it: some windows end while the table has no column, and are applied when it has some again."""
    followed = followed_rows(spark, database, tmp_path / "lake", plugin)
    for statement in WITHOUT_COLUMNS[what]:
        database.execute(statement)
        capture(followed.pipeline)
    for marker in ChangeLog(followed.pipeline.lake.change_log).markers():
        apply(Run(followed.pipeline, lambda: spark), upto=marker.window.hi)
    assert sync(followed.pipeline, lambda: spark).errors == ()
    followed.assert_equal()


def test_a_range_that_ends_without_columns_asks_for_no_spark(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    followed = followed_rows(spark, database, tmp_path / "lake")
    database.execute("ALTER TABLE s DROP COLUMN a", "INSERT INTO s DEFAULT VALUES")
    capture(followed.pipeline)

    (table,) = apply(Run(followed.pipeline, no_spark)).tables
    assert "public.s has no columns from " in str(table.error)
    assert "DELTA" not in str(table.error)


def test_in_mode_append(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    """A change says nothing of a column that was added later, whatever its default."""
    followed = followed_rows(spark, database, tmp_path / "lake", mode="append")
    database.execute("; ".join(WITHOUT_COLUMNS["inserted"]))
    assert sync(followed.pipeline, lambda: spark).errors == ()
    rows = spark.read.format("delta").load(followed.pipeline.lake.table(NAME))
    assert sorted((row.b for row in rows.collect()), key=repr) == [8, None, None, None, None]
