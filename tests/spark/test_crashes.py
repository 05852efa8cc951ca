"""Killed at every border between two commits, the next run ends equal; nothing is lost and nothing applied twice."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from spark_jobs.change_log.log import ChangeLog
from spark_jobs.configuration import MergeEngine
from spark_jobs.lake.table_state import table_state
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.status import pipeline_status
from spark_jobs.sync import sync
from tests.at_night import at_night
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database
from tests.fixtures.spark import for_few_rows
from tests.fixtures.waiting import wait_until
from tests.spark.crash import BORDERS, SAID, started
from tests.spark.followed_pipeline import Followed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

TABLES = ("a", "b", "c", "d")


@pytest.fixture
def four_tables(spark: SparkSession, database: Database, tmp_path: Path, jars_folder: Path) -> Followed:
    """Synced once, then changed; by Spark from here on."""
    for table in TABLES:
        database.execute(
            f"CREATE TABLE {table} (id int PRIMARY KEY, v text)",
            f"INSERT INTO {table} SELECT g, 'first' FROM generate_series(1, 20) g",
        )
    pipeline = pipeline_of(database, tmp_path / "lake", *(f"public.{table}" for table in TABLES), engine="spark")
    pipeline = replace(pipeline, spark=for_few_rows(jars_folder))
    followed = Followed(spark, database, pipeline, tuple(QualifiedName("public", table) for table in TABLES))
    assert sync(replace(pipeline, merge_engine="auto"), lambda: spark).errors == ()
    for table in TABLES:
        database.execute(
            f"UPDATE {table} SET v = 'second' WHERE id < 10",
            f"DELETE FROM {table} WHERE id = 15",
            f"INSERT INTO {table} VALUES (100, 'new')",
        )
    return followed


def slot_lsn(followed: Followed) -> object:
    query = f"SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '{followed.pipeline.source.slot}'"
    return followed.database.execute(query)[0][0]


# capture knows no writer: by day the last one shows that Spark goes on from there
@pytest.mark.parametrize(
    ("step", "engine"),
    [
        *((step, "auto") for step in BORDERS if step != "advanced_not_applied"),
        ("advanced_not_applied", "spark"),
        *(at_night(step, "spark") for step in BORDERS if step != "advanced_not_applied"),
    ],
)
def test_killed_at_a_border(four_tables: Followed, tmp_path: Path, step: str, engine: MergeEngine) -> None:
    four_tables = replace(four_tables, pipeline=replace(four_tables.pipeline, merge_engine=engine))
    log = ChangeLog(four_tables.pipeline.lake.change_log)
    landed, moved_to = len(log.markers()), slot_lsn(four_tables)
    assert started(step, four_tables.pipeline, tmp_path).wait(120) == -signal.SIGKILL
    # where it died is where it says
    assert (len(log.markers()) > landed) is (step != "while_landing")
    assert (slot_lsn(four_tables) != moved_to) is (step == "advanced_not_applied")

    report = sync(four_tables.pipeline, lambda: four_tables.spark)
    assert report.errors == ()
    four_tables.assert_equal()


def versions(followed: Followed) -> list[int]:
    """The Delta version of each table."""
    identity = followed.markers[0].identity
    states = [table_state(followed.pipeline.lake, name, identity) for name in followed.names]
    return [state.version for state in states if state is not None]


def killed_once(happened: Callable[[], bool], step: str, followed: Followed, folder: Path) -> None:
    """Start ``step`` and kill it, JVM and all, as soon as this is true."""
    process = started(step, followed.pipeline, folder)
    wait_until(lambda: "ready\n" in (folder / SAID).read_text(), "its session")
    deadline = time.monotonic() + 300
    while not happened() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(60)


def test_killed_in_the_middle_of_snapshots(four_tables: Followed, tmp_path: Path) -> None:
    tables = Path(four_tables.pipeline.lake.path, "tables")

    def data_files() -> set[Path]:
        return set(tables.glob("**/*.parquet"))

    files, before = data_files(), versions(four_tables)
    rows = [four_tables.lake_rows(name) for name in four_tables.names]
    assert started("in_snapshots", four_tables.pipeline, tmp_path).wait(300) == -signal.SIGKILL
    assert data_files() > files, "no snapshot had begun to write before the kill"
    assert versions(four_tables) == before, "a snapshot was done before the kill"
    assert [four_tables.lake_rows(name) for name in four_tables.names] == rows

    report = sync(four_tables.pipeline, lambda: four_tables.spark)
    assert (report.errors, report.snapshots) == ((), ())
    four_tables.assert_equal()


@pytest.mark.nightly
def test_killed_between_first_snapshots(
    spark: SparkSession, database: Database, tmp_path: Path, jars_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The next sync reads the table that was not committed, and that one only. Nothing is left of the first attempt."""
    database.execute(
        "CREATE TABLE small (id int PRIMARY KEY, v text)",
        "INSERT INTO small VALUES (1, 'one')",
        "CREATE TABLE large (id int PRIMARY KEY, v text)",
        "INSERT INTO large SELECT g, md5(g::text) FROM generate_series(1, 300000) g",
    )
    pipeline = pipeline_of(database, tmp_path / "lake", "public.small", "public.large")
    pipeline = replace(pipeline, spark=for_few_rows(jars_folder))
    small, large = QualifiedName("public", "small"), QualifiedName("public", "large")
    followed = Followed(spark, database, pipeline, (small, large))
    assert started("between_first_snapshots", followed.pipeline, tmp_path).wait(300) == -signal.SIGKILL

    folder = Path(pipeline.lake.table(large))
    in_vain = set(folder.rglob("*.parquet"))
    assert in_vain
    assert [table.applied_lsn is None for table in pipeline_status(pipeline).tables] == [False, True]
    deadline = time.monotonic() + 60
    while held := database.execute(
        "SELECT query FROM pg_stat_activity WHERE datname = current_database() AND backend_xmin IS NOT NULL"
        " AND backend_type = 'client backend' AND pid <> pg_backend_pid() UNION ALL"
        " SELECT slot_name::text FROM pg_replication_slots WHERE temporary AND database = current_database()"
    ):
        assert time.monotonic() < deadline, f"the server still holds {held}"
        time.sleep(0.1)

    report = sync(pipeline, lambda: spark)
    assert report.errors == ()
    assert [taken.name for taken in report.snapshots] == [large]
    (said,) = [message for message in caplog.messages if "was cut off" in message]
    assert said.startswith("public.large: ")
    left = set(folder.rglob("*.parquet"))
    assert not in_vain & left
    assert {file.name for file in left} == {Path(uri).name for uri in DeltaTable(folder).file_uris()}
    followed.assert_equal()


@pytest.mark.nightly
def test_killed_between_two_tables(four_tables: Followed, tmp_path: Path) -> None:
    before = versions(four_tables)
    killed_once(lambda: versions(four_tables) != before, "somewhere_in_sync", four_tables, tmp_path)
    after = versions(four_tables)
    assert before != after, "nothing was applied before the kill"
    assert any(old == new for old, new in zip(before, after, strict=True)), "all was applied before the kill"

    report = sync(four_tables.pipeline, lambda: four_tables.spark)
    assert report.errors == ()
    # exactly once: each table has one commit for these windows, whichever run made it
    assert versions(four_tables) == [old + 1 for old in before]
    four_tables.assert_equal()
