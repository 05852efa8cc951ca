"""Snapshot, capture and apply on a live server, each scenario ending in a comparison of source and lake."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import pytest

from spark_jobs.change_log.change_counts import ChangeCounts
from spark_jobs.errors import LakeError, SchemaChangeError, UnrepresentableError
from spark_jobs.lake.table_state import table_state
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.spark.errors import is_concurrent_commit
from spark_jobs.writers.with_spark.spark_writer import write_by_spark
from tests.fixtures.servers import Database
from tests.spark.followed_pipeline import Followed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

ODD = 'Odd %s `t. "q" {x}'
WIDE = "repeat(md5(random()::text), 400)"


@pytest.fixture
def followed(spark: SparkSession, database: Database, tmp_path: Path) -> Followed:
    """One table of common types with a TOASTed column, snapshotted with 100 rows."""
    database.execute(
        "CREATE TABLE item (id bigint PRIMARY KEY, name text, price numeric(10,2), at timestamp, seen timestamptz,"
        " day date, ok bool, raw bytea, doc text)",
        "ALTER TABLE item ALTER doc SET STORAGE EXTERNAL",
        "INSERT INTO item SELECT g, 'name ' || g, g / 3.0, '2024-01-01'::timestamp + g * interval '1 min',"
        " '2024-01-01'::timestamptz + g * interval '1 min', '2024-01-01'::date + g, g % 2 = 0, decode(md5(g::text),"
        f" 'hex'), {WIDE} FROM generate_series(1, 100) g",
    )
    followed = Followed.start(spark, database, tmp_path / "lake", "item")
    assert [table.error for table in followed.snapshot()] == [None]
    return followed


def test_snapshot_equals_source(followed: Followed) -> None:
    followed.assert_equal()


def test_insert_update_delete(followed: Followed) -> None:
    followed.database.execute(
        "INSERT INTO item (id, name) SELECT g, 'new' FROM generate_series(101, 150) g",
        "UPDATE item SET price = 1 WHERE id % 3 = 0",  # keeps the TOASTed documents
        "UPDATE item SET name = NULL, doc = 'short' WHERE id = 4",
        "DELETE FROM item WHERE id % 7 = 0",
    )
    (applied,) = followed.sync()
    assert (applied.outcome, applied.error) == ("applied", None)
    assert applied.changes == ChangeCounts(50, 51, 21)
    followed.assert_equal()


def test_inserts_alone_are_appended(followed: Followed) -> None:
    followed.database.execute("INSERT INTO item (id, name) VALUES (1000, 'a'), (1001, 'b')")
    (applied,) = followed.sync()
    assert applied.rows_written == 2
    history = followed.spark.sql(f"DESCRIBE HISTORY delta.`{followed.pipeline.lake.table(followed.names[0])}`")
    assert next(row["operation"] for row in history.collect()) == "WRITE"
    followed.assert_equal()


def test_truncate_then_insert_is_one_overwrite(followed: Followed) -> None:
    followed.database.execute("TRUNCATE item", "INSERT INTO item (id, name) VALUES (7, 'again')")
    (applied,) = followed.sync()
    assert (applied.changes.truncates, applied.delta_version) == (1, 1)
    followed.assert_equal()


def test_columns_keep_their_attribute_numbers(followed: Followed) -> None:
    from spark_jobs.writers.with_spark.delta_table import table_columns

    path = followed.pipeline.lake.table(followed.names[0])
    numbers = [column.attnum for column in table_columns(followed.spark, path)]
    assert numbers == list(range(1, 10))
    for statement in ("INSERT INTO item (id) VALUES (500)", "UPDATE item SET name = 'x' WHERE id = 1", "TRUNCATE item"):
        followed.database.execute(statement)
        assert followed.sync()[0].error is None
    assert [column.attnum for column in table_columns(followed.spark, path)] == numbers
    followed.assert_equal()


def test_truncate_alone(followed: Followed) -> None:
    followed.database.execute("TRUNCATE item")
    assert followed.sync()[0].outcome == "applied"
    followed.assert_equal()


def test_keys_swap_and_moved_rows_keep_their_documents(followed: Followed) -> None:
    followed.database.execute(
        "BEGIN; UPDATE item SET id = -1 WHERE id = 1; UPDATE item SET id = 1 WHERE id = 2;"
        " UPDATE item SET id = 2 WHERE id = -1; COMMIT",
        "UPDATE item SET id = 5000 WHERE id = 5",
    )
    (applied,) = followed.sync()
    assert applied.error is None
    followed.assert_equal()


def test_the_same_windows_again_make_no_version(followed: Followed) -> None:
    followed.database.execute("UPDATE item SET name = 'x' WHERE id = 1")
    (first,) = followed.sync()
    (again,) = followed.apply()
    assert (again.outcome, again.delta_version) == ("already applied", None)
    assert again.state == first.state


def test_an_interrupted_run_that_did_commit_is_recognised(followed: Followed) -> None:
    """The states were read before another run applied the same windows."""
    from spark_jobs.apply.apply_tables import apply_tables
    from spark_jobs.apply.table_range import TableRange
    from spark_jobs.capture.capture import capture

    followed.database.execute("UPDATE item SET name = 'x' WHERE id = 1")
    capture(followed.pipeline)
    identity = followed.markers[0].identity
    stale = table_state(followed.pipeline.lake, followed.names[0], identity)
    assert stale is not None
    (first,) = followed.apply()
    (again,) = apply_tables([TableRange(followed.run, stale, followed.markers)])
    assert (first.outcome, again.outcome) == ("applied", "already applied")
    assert again.state == first.state
    followed.assert_equal()


def test_another_writers_commit_in_between_is_retried(followed: Followed) -> None:
    followed.database.execute("UPDATE item SET name = 'x' WHERE id < 50")
    table = f"delta.`{followed.pipeline.lake.table(followed.names[0])}`"

    def attempts() -> int:
        return int(write_by_spark.statistics.get("attempt_number", 0))

    def get_in_between(done: Event) -> None:
        """Another writer's commits, until one has cost the MERGE an attempt."""
        for number in itertools.count():
            if done.is_set() or attempts() > 1:
                return
            try:
                followed.spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('other.writer' = '{number}')")
            except Exception as error:
                if not is_concurrent_commit(error):  # this one may be what comes too late
                    raise

    done = Event()
    with ThreadPoolExecutor(1) as pool:
        write_by_spark.statistics.clear()
        other = pool.submit(get_in_between, done)
        (applied,) = followed.sync()
        done.set()
        other.result()
    assert (applied.outcome, applied.error) == ("applied", None)
    assert attempts() > 1, "no commit came in between"
    history = followed.spark.sql(f"DESCRIBE HISTORY {table}").collect()
    assert [row["operation"] for row in history].count("MERGE") == 1
    followed.assert_equal()


def test_nothing_for_the_table_is_no_commit(followed: Followed) -> None:
    followed.database.execute("CREATE TABLE other (id int)", "INSERT INTO other VALUES (1)")
    (applied,) = followed.sync()
    assert (applied.outcome, applied.delta_version) == ("nothing to apply", None)


def test_a_changed_column_stops_its_table_alone(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE a (id int PRIMARY KEY, v int)", "CREATE TABLE b (id int PRIMARY KEY, v int)")
    followed = Followed.start(spark, database, tmp_path / "lake", "a", "b")
    followed.snapshot()
    database.execute("ALTER TABLE a ALTER v TYPE bigint", "INSERT INTO a VALUES (1, 1)", "INSERT INTO b VALUES (1, 1)")
    stopped, applied = followed.sync()
    assert isinstance(stopped.error, SchemaChangeError)
    assert "the type of column v was changed" in str(stopped.error)
    assert "postgres-cdc snapshot" in stopped.error.hint
    assert (stopped.outcome, applied.outcome) == ("stopped", "applied")
    # the way out that the hint names
    (again,) = followed.snapshot(QualifiedName("public", "a"))
    assert again.error is None
    followed.sync()
    followed.assert_equal()


def test_odd_names_and_empty_tables(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    quoted = ODD.replace('"', '""')
    database.execute(
        f'CREATE TABLE "{quoted}" ("i d" int, "b`{{0}}" text, "a%,;" text, v jsonb, PRIMARY KEY ("b`{{0}}", "i d"))',
        "CREATE TABLE empty (id int PRIMARY KEY, v text)",
    )
    followed = Followed.start(spark, database, tmp_path / "the lake", ODD, "empty")
    assert [(table.rows, table.error) for table in followed.snapshot()] == [(0, None), (0, None)]
    database.execute(f"INSERT INTO \"{quoted}\" SELECT g, 'k''' || g, 'v', '{{\"a\": 1}}' FROM generate_series(1, 5) g")
    assert followed.sync()[0].error is None
    database.execute(f'UPDATE "{quoted}" SET "a%,;" = \'w\' WHERE "i d" < 3', f'DELETE FROM "{quoted}" WHERE "i d" = 4')
    assert followed.sync()[0].error is None
    followed.assert_equal()


def test_one_bad_table_leaves_the_other_snapshots_alone(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    database.execute(
        "CREATE TABLE good (id int PRIMARY KEY)",
        "INSERT INTO good VALUES (1)",
        "CREATE TABLE bad (id int PRIMARY KEY, day date)",
        "INSERT INTO bad VALUES (1, 'infinity')",
    )
    followed = Followed.start(spark, database, tmp_path / "lake", "good", "bad")
    good, bad = followed.snapshot()
    assert (good.rows, good.error) == (1, None)
    assert isinstance(bad.error, UnrepresentableError)
    assert "infinity" in str(bad.error)
    assert bad.state is None


def test_a_table_of_somebody_else_is_not_overwritten(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE item (id int PRIMARY KEY)")
    followed = Followed.start(spark, database, tmp_path / "lake", "item")
    path = followed.pipeline.lake.table(followed.names[0])
    spark.range(3).write.format("delta").save(path)
    (snapshot,) = followed.snapshot()
    assert isinstance(snapshot.error, LakeError)
    assert spark.read.format("delta").load(path).count() == 3


def test_many_rows_go_through_staging_which_is_cleaned_up(followed: Followed) -> None:
    followed.database.execute(
        "INSERT INTO item (id, name) SELECT g, 'n' FROM generate_series(1000, 31000) g",
        "UPDATE item SET price = 2 WHERE id < 30000",
    )
    assert followed.sync()[0].rows_written > 20_000
    followed.assert_equal()
    staging = Path(followed.pipeline.lake.path, "_staging")
    assert staging.is_dir()
    assert [left for left in staging.rglob("*") if left.is_file()] == []


def test_a_snapshot_of_a_running_table_continues_without_a_gap(followed: Followed) -> None:
    """Windows landed before the snapshot hold changes that it shows already, and the reverse."""
    followed.database.execute("UPDATE item SET price = 5")
    from spark_jobs.capture.capture import capture

    capture(followed.pipeline)
    followed.database.execute("UPDATE item SET price = 6", "DELETE FROM item WHERE id = 3")
    (snapshot,) = followed.snapshot()
    assert snapshot.error is None
    followed.database.execute("INSERT INTO item (id, name) VALUES (3, 'three')")
    assert followed.sync()[0].error is None
    followed.assert_equal()


def test_no_password_in_an_error(followed: Followed) -> None:
    password = followed.database.server.password
    followed.database.execute("INSERT INTO item (id, day) VALUES (-5, 'infinity')")
    (snapshot,) = followed.snapshot()
    assert snapshot.error is not None
    seen: BaseException | None = snapshot.error
    while seen is not None:
        assert password not in str(seen)
        seen = seen.__cause__
