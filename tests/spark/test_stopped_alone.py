"""A table that cannot be followed stops alone, in the first sync as in any other, and costs the next ones nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.configuration import Pipeline
from spark_jobs.doctor import diagnose
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.sync import sync
from tests.fixtures.no_spark import no_spark
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database
from tests.spark.followed_pipeline import Followed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

BYSTANDER = ("CREATE TABLE bystander (id int PRIMARY KEY, t text)", "INSERT INTO bystander VALUES (1, 'a')")
CHANGED = "UPDATE bystander SET t = t || '!'"


def assert_equal(spark: SparkSession, database: Database, pipeline: Pipeline, *tables: str) -> None:
    Followed(spark, database, pipeline, tuple(QualifiedName("public", table) for table in tables)).assert_equal()


def everything_of(database: Database, lake: Path, *, named: tuple[str, ...] = ()) -> Pipeline:
    """A pipeline over all tables, by a publication FOR ALL TABLES, or over those named."""
    if not named:
        via_root = "publish_via_partition_root = true"
        database.execute(f"CREATE PUBLICATION {database.name} FOR ALL TABLES WITH ({via_root})")
    return pipeline_of(database, lake, *named)


@pytest.mark.parametrize("named", [False, True], ids=["all tables", "named"])
def test_in_the_first_sync(spark: SparkSession, database: Database, tmp_path: Path, *, named: bool) -> None:
    database.execute(
        *BYSTANDER,
        "CREATE EXTENSION postgres_fdw",
        "CREATE SERVER back FOREIGN DATA WRAPPER postgres_fdw OPTIONS (dbname 'somewhere')",
        "CREATE TABLE root (id int, v text, PRIMARY KEY (id)) PARTITION BY RANGE (id)",
        "CREATE TABLE near PARTITION OF root FOR VALUES FROM (0) TO (100)",
        "ALTER TABLE root DROP CONSTRAINT root_pkey",  # foreign partitions have no unique indexes
        "CREATE FOREIGN TABLE far PARTITION OF root FOR VALUES FROM (100) TO (200) SERVER back",
        "ALTER TABLE near REPLICA IDENTITY FULL",
        'CREATE TABLE reserved (id int PRIMARY KEY, "_metadata" text)',
        "CREATE TABLE nothing ()",
    )
    stopped = {
        "public.root": "has a partition, public.far, that is a foreign table",
        "public.reserved": "has columns whose names Delta Lake uses itself: _metadata",
        "public.nothing": "has no columns that are sent",
    }
    wanted = ("public.bystander", *stopped, *(("public.mistyped",) if named else ()))
    pipeline = everything_of(database, tmp_path / "lake", named=wanted if named else ())
    report = sync(pipeline, lambda: spark)
    told = [str(error) for error in report.errors]
    for name, why in (stopped | ({"public.mistyped": "in database"} if named else {})).items():
        assert len([line for line in told if name in line and why in line]) == 1, (name, told)
    assert [taken.name.relname for taken in report.snapshots] == ["bystander"]
    found = [(check.what, check.found) for check in diagnose(pipeline).failures]
    assert all(any(what == name and why in said for what, said in found) for name, why in stopped.items()), found
    database.execute(CHANGED)
    assert len(sync(pipeline, no_spark).errors) == len(told)
    assert_equal(spark, database, pipeline, "bystander")

    database.execute(
        "ALTER TABLE root DETACH PARTITION far",
        'ALTER TABLE reserved RENAME "_metadata" TO meta',
        "ALTER TABLE nothing ADD COLUMN id int PRIMARY KEY",
        "INSERT INTO nothing VALUES (1)",
        "CREATE TABLE mistyped (id int PRIMARY KEY)",
        "INSERT INTO root VALUES (1, 'near')",
    )
    assert sync(pipeline, lambda: spark).errors == ()
    assert_equal(spark, database, pipeline, "bystander", "root", "reserved", "nothing")


@pytest.mark.parametrize("keyed", [False, True], ids=["whole rows", "keyed"])
def test_a_table_that_loses_its_last_column(
    spark: SparkSession, database: Database, tmp_path: Path, *, keyed: bool
) -> None:
    identity = "ADD PRIMARY KEY (a)" if keyed else "REPLICA IDENTITY FULL"
    database.execute(*BYSTANDER, "CREATE TABLE shrinking (a int)", f"ALTER TABLE shrinking {identity}")
    database.execute("INSERT INTO shrinking SELECT generate_series(1, 3)")
    pipeline = everything_of(database, tmp_path / "lake")
    assert sync(pipeline, lambda: spark).errors == ()
    database.execute("ALTER TABLE shrinking REPLICA IDENTITY FULL", "ALTER TABLE shrinking DROP COLUMN a", CHANGED)
    for statement in (CHANGED, "INSERT INTO shrinking DEFAULT VALUES", CHANGED):
        (error,) = sync(pipeline, no_spark).errors
        assert str(error).startswith("table public.shrinking has no columns that are sent")
        assert_equal(spark, database, pipeline, "bystander")
        database.execute(statement)
    database.execute("ALTER TABLE shrinking ADD COLUMN b int DEFAULT 7", "INSERT INTO shrinking VALUES (8)")
    assert sync(pipeline, lambda: spark).errors == ()
    assert_equal(spark, database, pipeline, "bystander", "shrinking")
    assert sorted(database.execute("SELECT b FROM shrinking")) == [(7,)] * 4 + [(8,)]


@pytest.mark.parametrize("default", ["DEFAULT 7", ""])
@pytest.mark.parametrize("one_transaction", [False, True], ids=["each alone", "one transaction"])
def test_a_row_that_is_inserted_without_columns(
    spark: SparkSession, database: Database, tmp_path: Path, default: str, *, one_transaction: bool
) -> None:
    database.execute("CREATE TABLE s (a int)", "ALTER TABLE s REPLICA IDENTITY FULL")
    database.execute("INSERT INTO s SELECT generate_series(1, 3)")
    pipeline = everything_of(database, tmp_path / "lake")
    assert sync(pipeline, lambda: spark).errors == ()
    statements = (
        "ALTER TABLE s DROP COLUMN a",
        "INSERT INTO s DEFAULT VALUES",
        f"ALTER TABLE s ADD COLUMN b int {default}",
        "INSERT INTO s VALUES (8)",
        "DELETE FROM s WHERE b = 8",
        "INSERT INTO s VALUES (9)",
    )
    database.execute(*(["; ".join(statements)] if one_transaction else statements))
    assert sync(pipeline, lambda: spark).errors == ()
    assert_equal(spark, database, pipeline, "s")
