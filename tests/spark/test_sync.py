"""The whole job: sync on a live server, again and again, each time ending in a comparison of source and lake."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.apply.apply import apply
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.configuration import Table, WindowLimits
from spark_jobs.errors import PreconditionError, SchemaChangeError
from spark_jobs.lake.cuts import latest_cut
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.snapshot.snapshot import snapshot
from spark_jobs.status import pipeline_status
from spark_jobs.sync import sync
from tests.fixtures.no_spark import no_spark
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database
from tests.spark.followed_pipeline import Followed, synced

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]


@pytest.fixture
def shop(spark: SparkSession, database: Database, tmp_path: Path) -> Followed:
    """Two tables, nothing made yet."""
    database.execute(
        "CREATE TABLE orders (id bigint PRIMARY KEY, status text)",
        "CREATE TABLE items (order_id bigint REFERENCES orders ON DELETE CASCADE, line int, sku text,"
        " PRIMARY KEY (order_id, line))",
        "INSERT INTO orders SELECT g, 'new' FROM generate_series(1, 50) g",
        "INSERT INTO items SELECT g, l, 'sku' FROM generate_series(1, 50) g, generate_series(1, 2) l",
    )
    pipeline = pipeline_of(database, tmp_path / "lake", "public.orders", "public.items")
    return Followed(spark, database, pipeline, (QualifiedName("public", "orders"), QualifiedName("public", "items")))


@pytest.fixture
def by_spark(shop: Followed) -> Followed:
    """The same where Spark writes everything, which takes several times as long."""
    return replace(shop, pipeline=replace(shop.pipeline, merge_engine="spark"))


def test_the_first_sync_makes_everything_and_the_next_ones_follow(by_spark: Followed) -> None:
    first = synced(by_spark)
    assert [(taken.name.relname, taken.rows) for taken in first.snapshots] == [("orders", 50), ("items", 100)]
    by_spark.assert_equal()
    by_spark.database.execute("DELETE FROM orders WHERE id < 10", "UPDATE items SET sku = 'other' WHERE line = 2")
    second = synced(by_spark)
    assert second.snapshots == ()
    assert {table.name.relname: table.outcome for table in second.tables} == {"orders": "applied", "items": "applied"}
    by_spark.assert_equal()


def test_a_backlog_of_many_windows_is_one_commit_per_table(by_spark: Followed) -> None:
    synced(by_spark)
    many = replace(by_spark.pipeline, windows=WindowLimits(max_bytes=4096, max_per_run=1000))
    by_spark.database.execute(*(f"UPDATE orders SET status = 'step {step}'" for step in range(10)))
    report = sync(many, lambda: by_spark.spark)
    assert len(report.windows) > 10
    assert [table.delta_version for table in report.tables if table.name.relname == "orders"] == [1]
    by_spark.assert_equal()


def test_runs_of_few_windows_catch_up_all_the_same(shop: Followed) -> None:
    synced(shop)
    few = replace(shop.pipeline, windows=WindowLimits(max_bytes=4096, max_per_run=2))
    shop.database.execute(*(f"UPDATE orders SET status = 'step {step}'" for step in range(6)))
    report = sync(few, lambda: shop.spark)
    assert report.errors == ()
    assert len(report.windows) > 2
    shop.assert_equal()


def test_nothing_new_needs_no_spark_and_makes_no_commit(by_spark: Followed) -> None:
    synced(by_spark)
    before = latest_cut(by_spark.pipeline.lake)
    report = sync(by_spark.pipeline, no_spark)
    assert {table.outcome for table in report.tables} == {"nothing to apply"}
    after = latest_cut(by_spark.pipeline.lake)
    assert before is not None
    assert after is not None
    assert after.tables == before.tables


def test_a_table_that_was_idle_for_long_is_applied_from_the_cut(shop: Followed) -> None:
    synced(shop)
    for step in range(3):
        shop.database.execute(f"UPDATE orders SET status = 'step {step}'")
        synced(shop)
    shop.database.execute("UPDATE items SET sku = 'late' WHERE order_id = 1")
    report = synced(shop)
    (items,) = [table for table in report.tables if table.name.relname == "items"]
    assert items.outcome == "applied"
    assert items.first == items.last, "the windows without changes of it are not read again"
    shop.assert_equal()


def test_an_optimize_by_hand_leaves_no_table_behind(shop: Followed) -> None:
    synced(shop)
    shop.database.execute("UPDATE items SET sku = 'other' WHERE line = 2")
    synced(shop)
    shop.database.execute("UPDATE orders SET status = 'paid'")  # a window that makes no commit in items
    synced(shop)
    items = shop.names[1]
    before = pipeline_status(shop.pipeline).tables[1]
    assert (before.name, before.pending_windows) == (items, 0)
    shop.spark.sql(f"OPTIMIZE delta.`{shop.pipeline.lake.table(items)}` ZORDER BY (sku)")
    after = pipeline_status(shop.pipeline).tables[1]
    assert before.delta_version is not None
    before = replace(before, delta_version=before.delta_version + 1)
    # the server itself may have written a little WAL meanwhile
    assert replace(after, lag_bytes=None, lag_seconds=None) == replace(before, lag_bytes=None, lag_seconds=None)


def test_a_cut_shows_all_tables_at_one_lsn(shop: Followed) -> None:
    synced(shop)
    shop.database.execute("DELETE FROM orders WHERE id <= 5")  # items go with it
    cut = synced(shop).cut
    assert cut is not None
    shop.database.execute("DELETE FROM orders WHERE id <= 20")
    synced(shop)
    shown = {
        table.name.relname: shop.spark.read.format("delta")
        .option("versionAsOf", table.version)
        .load(shop.pipeline.lake.table(table.name))
        .count()
        for table in cut.tables
    }
    assert shown == {"orders": 45, "items": 90}


def test_apply_stops_where_it_is_told(shop: Followed) -> None:
    synced(shop)
    shop.database.execute("UPDATE orders SET status = 'first'")
    synced(shop)
    marker = ChangeLog(shop.pipeline.lake.change_log).markers()[-1]
    shop.database.execute("UPDATE orders SET status = 'second'")
    from spark_jobs.capture.capture import capture

    capture(shop.pipeline)
    untouched = apply(Run(shop.pipeline, no_spark), upto=marker.window.hi)
    assert {table.outcome for table in untouched.tables} == {"nothing to apply"}
    assert apply(Run(shop.pipeline, lambda: shop.spark)).errors == ()
    shop.assert_equal()


def test_a_table_added_later_is_snapshotted_while_the_others_go_on(shop: Followed) -> None:
    synced(shop)
    shop.database.execute(
        "CREATE TABLE extra (id int PRIMARY KEY)",
        "INSERT INTO extra VALUES (1), (2)",
        "DELETE FROM orders WHERE id = 1",
    )
    tables = (*(shop.pipeline.tables or ()), Table(QualifiedName("public", "extra")))
    more = replace(
        shop, pipeline=replace(shop.pipeline, tables=tables), names=(*shop.names, QualifiedName("public", "extra"))
    )
    report = synced(more)
    assert [taken.name.relname for taken in report.snapshots] == ["extra"]
    more.database.execute("INSERT INTO extra VALUES (3)", "DELETE FROM extra WHERE id = 1")
    synced(more)
    more.assert_equal()


def test_a_table_taken_out_keeps_its_rows(shop: Followed) -> None:
    synced(shop)
    fewer = replace(shop, pipeline=replace(shop.pipeline, tables=(Table(shop.names[0]),)), names=shop.names[:1])
    shop.database.execute("DELETE FROM orders WHERE id = 1")
    synced(fewer)
    fewer.assert_equal()
    rows, _ = shop.lake_rows(shop.names[1])
    assert len(rows) == 100


def test_a_snapshot_taken_anew_by_hand(shop: Followed) -> None:
    synced(shop)
    shop.database.execute("UPDATE orders SET status = 'later'")
    (taken,) = snapshot(Run(shop.pipeline, lambda: shop.spark), [shop.names[0]])
    assert taken.error is None
    shop.database.execute("DELETE FROM orders WHERE id = 2")
    synced(shop)
    shop.assert_equal()


def test_every_table_of_a_users_own_publication(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    database.execute(
        "CREATE TABLE one (id int PRIMARY KEY, v text)",
        "CREATE TABLE two (id int PRIMARY KEY, v text)",
        "INSERT INTO one VALUES (1, 'a')",
        f"CREATE PUBLICATION {database.name} FOR ALL TABLES",
    )
    names = (QualifiedName("public", "one"), QualifiedName("public", "two"))
    followed = Followed(spark, database, pipeline_of(database, tmp_path / "lake"), names)
    synced(followed)
    database.execute("INSERT INTO two VALUES (1, 'b')", "UPDATE one SET v = 'c'")
    synced(followed)
    followed.assert_equal()


@pytest.mark.parametrize(
    ("ddl", "told"),
    [
        ("ALTER TABLE orders RENAME TO purchases", "was renamed"),
        ("DROP TABLE orders CASCADE; CREATE TABLE orders (id bigint PRIMARY KEY, status text)", "another table"),
    ],
    ids=["renamed", "re-created"],
)
def test_another_table_under_the_name_stops_it(shop: Followed, ddl: str, told: str) -> None:
    synced(shop)
    table = "purchases" if "purchases" in ddl else "orders"
    publish = f"ALTER PUBLICATION {shop.database.name} ADD TABLE {table}" if "CREATE" in ddl else "SELECT 1"
    shop.database.execute(*ddl.split(";"), publish, f"INSERT INTO {table} VALUES (999, 'x')")
    from spark_jobs.capture.capture import capture

    capture(shop.pipeline)
    report = apply(Run(shop.pipeline, lambda: shop.spark))
    (error,) = report.errors
    assert isinstance(error, SchemaChangeError)
    assert told in str(error)


def test_a_table_whose_delta_log_is_damaged_stops_alone(by_spark: Followed) -> None:
    synced(by_spark)
    log = Path(by_spark.pipeline.lake.table(by_spark.names[0]), "_delta_log")
    for commit in log.glob("*.json"):
        commit.write_bytes(b'{"txn"')
    by_spark.database.execute("UPDATE orders SET status = 'x'", "UPDATE items SET sku = 'x'")
    report = sync(by_spark.pipeline, lambda: by_spark.spark)
    outcomes = {table.name.relname: table.outcome for table in report.tables}
    assert outcomes == {"orders": "stopped", "items": "applied"}
    (error,) = report.errors
    assert "public.orders" in str(error)


def test_where_no_table_can_be_followed_everything_is_left_as_it_was(database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE keyless (id int)", "CREATE TABLE nothing ()")
    pipeline = pipeline_of(database, tmp_path / "lake", "public.keyless", "public.nothing")
    others = r"public\.keyless has no usable key .* \(and public\.nothing cannot be replicated either\)"
    with pytest.raises(PreconditionError, match=others):
        sync(pipeline, no_spark)
    assert database.execute("SELECT count(*) FROM pg_publication") == [(0,)]
    assert database.execute(f"SELECT count(*) FROM pg_replication_slots WHERE database = '{database.name}'") == [(0,)]
    assert not (tmp_path / "lake").exists()


def test_status_says_which_tables_sync_leaves_out_as_sync_does(database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY)", "CREATE TABLE keyless (id int)")
    pipeline = pipeline_of(database, tmp_path / "lake", "public.orders", "public.keyless", "public.missing")
    told = [error.what for error in sync(pipeline, no_spark).errors]
    assert len(told) == 2
    assert [error.what for error in pipeline_status(pipeline).errors] == told


def test_lag_is_told_before_and_after(shop: Followed) -> None:
    synced(shop)
    shop.database.execute("UPDATE orders SET status = repeat('x', 1000)")
    report = synced(shop)
    assert report.lag_bytes_before > 50_000
    assert report.lag_bytes < report.lag_bytes_before
    assert report.windows[-1].window.hi > Lsn(0)
