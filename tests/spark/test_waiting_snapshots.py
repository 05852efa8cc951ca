"""A table whose snapshot waits for somebody else's open transaction: it is named, nothing waits with it, none is lost.

How long to wait is a parameter here, so no test depends on the time that something takes.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from rich.console import Console

from cdc_assets.cli.json_output import json_value
from cdc_assets.cli.sync import _display
from spark_jobs.capture.capture import capture
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import SnapshotWaitsError
from spark_jobs.follow import Follower, FollowRound
from spark_jobs.lake.table_state import has_delta_table
from spark_jobs.prepare import prepare
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.recover import recover
from spark_jobs.run import Run
from spark_jobs.snapshot.exporter import BRIEF, PATIENT, Exporter, Patience
from spark_jobs.snapshot.snapshot import snapshot
from spark_jobs.status import pipeline_status
from spark_jobs.sync import SyncReport, sync
from spark_jobs.verify.verify import verify
from tests.cli.command import configured
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database
from tests.fixtures.waiting import wait_until
from tests.spark.altered_tables import assert_equal, read_again, synced, versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

ORDERS, ITEMS, NEW = (QualifiedName("public", name) for name in ("orders", "items", "new"))
REWRITE = "ALTER TABLE orders ALTER a TYPE int USING a + 1"
NOT_AT_ALL = Patience(0)


@pytest.fixture
def shop(spark: SparkSession, database: Database, tmp_path: Path) -> Pipeline:
    """Two tables, synced."""
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, a int)",
        "CREATE TABLE items (id int PRIMARY KEY, sku text)",
        "CREATE TABLE elsewhere (id int)",
        "INSERT INTO orders SELECT g, g FROM generate_series(1, 20) g",
        "INSERT INTO items SELECT g, 'sku' FROM generate_series(1, 20) g",
    )
    pipeline = pipeline_of(database, tmp_path / "lake", "public.orders", "public.items")
    synced(spark, pipeline)
    return pipeline


@contextmanager
def idle_in_transaction(database: Database) -> Iterator[psycopg.Connection[Any]]:
    """A session that has written and does nothing more; committed at the end."""
    with database.connect() as session, session.transaction():
        session.execute("INSERT INTO elsewhere VALUES (1)")
        yield session


def hurried(spark: SparkSession, pipeline: Pipeline) -> SyncReport:
    return sync(pipeline, lambda: spark, patience=NOT_AT_ALL)


def shown(display: Any) -> str:
    console = Console(file=io.StringIO(), width=250)
    console.print(display)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_table_that_waits_holds_up_no_other_and_fails_nothing(
    spark: SparkSession, database: Database, shop: Pipeline, tmp_path: Path
) -> None:
    with idle_in_transaction(database) as session:
        database.execute(REWRITE, "UPDATE items SET sku = 'first'")
        session.execute("UPDATE orders SET a = 100 WHERE id = 1")
        pid = session.info.backend_pid
        for change in ("UPDATE items SET sku = 'second'", "UPDATE orders SET a = 200 WHERE id = 2"):
            database.execute(change)
            report = hurried(spark, shop)
            if not report.waiting:  # the server has written WAL of its own at the look: then the next window tells
                report = hurried(spark, shop)
            assert report.errors == ()
            assert not [taken for taken in report.snapshots if taken.error is None]
            (waiting,) = report.waiting
            assert (waiting.name, waiting.transaction and waiting.transaction.pid) == (ORDERS, pid)
            assert_equal(spark, shop, ITEMS)
        said = (
            "public.orders waits for its snapshot: public.orders needs a re-snapshot: it was rewritten by DDL, or"
            " unlogged for a time"
        )
        assert str(waiting).startswith(said)
        assert f"while the transaction of server process {pid} (idle in transaction), open for " in str(waiting)
        assert str(waiting).endswith(f"end it, if it was forgotten: SELECT pg_terminate_backend({pid})")
        assert said in shown(_display(report))
        document: Any = json_value(report)
        assert [(one["name"], one["transaction"]["pid"]) for one in document["waiting"]] == [("public.orders", pid)]
        session.execute("SELECT pg_sleep(2)")  # status does not name those that are about to end
        (table,) = [table for table in pipeline_status(shop).tables if table.waits_for is not None]
        assert (table.name, table.waits_for and table.waits_for.pid) == (ORDERS, pid)
        command = configured(tmp_path, database.dsn, database.name, ["public.orders", "public.items"])
        named = f"the transaction of server process {pid} (idle in transaction), open for "
        assert f"public.orders waits for its snapshot: {named}" in command("status").stdout
        answer = command("sync", "--json", without_java=True)  # as patient as a sync is
        assert (answer.exit_code, [one["name"] for one in answer.document["waiting"]]) == (0, ["public.orders"])
    assert set(read_again(synced(spark, shop))) == {"orders"}
    assert_equal(spark, shop, ORDERS, ITEMS)
    versions(shop, ORDERS, ITEMS)


def test_all_that_wait_are_named(spark: SparkSession, database: Database, shop: Pipeline) -> None:
    """A table waits for its first snapshot, and in the same sync another turns out to need one."""
    database.execute("CREATE TABLE new (id int PRIMARY KEY)")
    more = replace(shop, tables=(*(shop.tables or ()), replace((shop.tables or ())[0], name=NEW)))
    with idle_in_transaction(database):
        database.execute(REWRITE)
        report = hurried(spark, more)
        if len(report.waiting) < 2:  # the server has written WAL of its own at the look: then the next window tells
            report = hurried(spark, more)
        assert {table.name for table in report.waiting} == {ORDERS, NEW}
        assert report.errors == ()
    assert_equal(spark, shop, ITEMS)


def test_a_table_that_is_being_altered_waits_as_any_other(
    spark: SparkSession, database: Database, shop: Pipeline
) -> None:
    """Its lock would hold up whatever looks at the table itself."""
    database.execute(REWRITE, "UPDATE items SET sku = 'first'")
    with database.connect() as session, session.transaction():
        session.execute("ALTER TABLE orders ADD b int")
        report = hurried(spark, shop)
        if not report.waiting:  # the server has written WAL of its own at the look: then the next window tells
            report = hurried(spark, shop)
        assert report.errors == ()
        assert [table.name for table in report.waiting] == [ORDERS]
        assert_equal(spark, shop, ITEMS)
    assert set(read_again(synced(spark, shop))) == {"orders"}
    assert_equal(spark, shop, ORDERS, ITEMS)


def test_windows_that_are_landed_while_a_snapshot_waits_are_not_taken_for_what_it_shows(
    spark: SparkSession, database: Database, shop: Pipeline
) -> None:
    """The export ends behind the caller's back, then the table changes, and a window with that is landed before the
    caller looks: the newest window is then newer than the snapshot."""
    database.execute(REWRITE)
    capture(shop)
    with Exporter(shop.source.dsn, NOT_AT_ALL) as exporter:
        with idle_in_transaction(database), pytest.raises(SnapshotWaitsError):
            snapshot(Run(shop, lambda: spark), [ORDERS], exporter=exporter)
        wait_until(lambda: not exporter.is_waiting, "the snapshot is exported")
        database.execute("UPDATE orders SET a = -1 WHERE id = 3", "DELETE FROM orders WHERE id = 4")
        capture(shop)
        exporter.patience = PATIENT
        (taken,) = snapshot(Run(shop, lambda: spark), [ORDERS], exporter=exporter)
    assert taken.error is None
    synced(spark, shop)
    assert_equal(spark, shop, ORDERS, ITEMS)
    versions(shop, ORDERS)


def test_a_new_table_waits_like_any_other(spark: SparkSession, database: Database, shop: Pipeline) -> None:
    with_new = replace(shop, tables=(*(shop.tables or ()), replace((shop.tables or ())[0], name=NEW)))
    database.execute("CREATE TABLE new (id int PRIMARY KEY, v text)", "INSERT INTO new VALUES (1, 'before')")
    with idle_in_transaction(database) as session:
        session.execute("INSERT INTO new VALUES (2, 'in it')")
        database.execute("UPDATE items SET sku = 'beside it'")
        report = hurried(spark, with_new)
        assert (report.errors, [table.name for table in report.waiting]) == ((), [NEW])
        assert_equal(spark, with_new, ITEMS)
        assert not has_delta_table(with_new.lake, NEW)
        database.execute("INSERT INTO new VALUES (3, 'after')")
        assert [table.name for table in hurried(spark, with_new).waiting] == [NEW]
    synced(spark, with_new)
    assert_equal(spark, with_new, NEW, ORDERS, ITEMS)


def test_a_first_sync_that_has_nothing_to_show_is_no_success(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY)", "CREATE TABLE elsewhere (id int)")
    pipeline = pipeline_of(database, tmp_path / "lake", "public.orders")
    prepare(pipeline)
    with idle_in_transaction(database) as session:
        report = hurried(spark, pipeline)
        (error,) = report.errors
        assert f"no snapshot can be exported while the transaction of server process {session.info.backend_pid}" in str(
            error
        )
        assert [table.name for table in report.waiting] == [ORDERS]
    synced(spark, pipeline)
    assert_equal(spark, pipeline, ORDERS)


def test_partitions_that_wait_to_be_read(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, a int) PARTITION BY RANGE (id)",
        "CREATE TABLE orders_1 PARTITION OF orders FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE orders_2 PARTITION OF orders FOR VALUES FROM (10) TO (20)",
        "CREATE TABLE items (id int PRIMARY KEY, sku text)",
        "CREATE TABLE elsewhere (id int)",
        "INSERT INTO orders SELECT g, g FROM generate_series(1, 19) g",
    )
    pipeline = pipeline_of(database, tmp_path / "lake", "public.orders", "public.items")
    synced(spark, pipeline)
    with idle_in_transaction(database):
        database.execute("ALTER TABLE orders DETACH PARTITION orders_1", "INSERT INTO items VALUES (1, 'beside it')")
        report = hurried(spark, pipeline)
        assert (report.errors, [table.name for table in report.waiting]) == ((), [ORDERS])
        assert "was detached or dropped" in report.waiting[0].why
        assert_equal(spark, pipeline, ITEMS)
    report = synced(spark, pipeline)
    assert (report.snapshots, report.waiting) == ((), ())
    assert_equal(spark, pipeline, ORDERS, ITEMS)


def test_a_recovered_pipeline_whose_tables_wait(spark: SparkSession, database: Database, shop: Pipeline) -> None:
    database.execute(
        "UPDATE items SET sku = 'passed over'",
        f"SELECT pg_replication_slot_advance('{shop.source.slot}', pg_current_wal_flush_lsn())",
    )
    with idle_in_transaction(database):
        report = recover(shop, lambda: spark, patience=NOT_AT_ALL)
        assert report.chapter is not None
        assert (report.errors, {table.name for table in report.waiting}) == ((), {ORDERS, ITEMS})
    assert set(read_again(synced(spark, shop))) == {"orders", "items"}
    assert_equal(spark, shop, ORDERS, ITEMS)


def test_verify_says_whom_it_would_have_to_wait_for(
    spark: SparkSession, database: Database, shop: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_jobs.verify.verify.BRIEF", replace(BRIEF, seconds=0))
    with idle_in_transaction(database) as session:
        problems, pid = verify(shop, lambda: spark).problems, session.info.backend_pid
    assert len(problems) == 2
    assert str(problems[0]).startswith(
        f"public.orders was not compared: no snapshot can be exported while the transaction of server process {pid}"
    )
    assert verify(shop, lambda: spark).problems == ()


def test_follow_brings_the_others_up_to_date_meanwhile(spark: SparkSession, database: Database, shop: Pipeline) -> None:
    """Many rounds pass in which the table waits and the other one shows each change."""
    stopping, rounds = threading.Event(), list[FollowRound]()
    waited = list[FollowRound]()
    opened = database.connect()
    opened.execute("BEGIN")
    opened.execute("INSERT INTO elsewhere VALUES (1)")
    pid = opened.info.backend_pid
    database.execute(REWRITE)

    def report(done: FollowRound) -> None:
        rounds.append(done)
        if len(rounds) > 200:
            stopping.set()
        if done.is_last:
            return
        if done.waiting and ITEMS in done.applied:
            waited.append(done)
        if len(waited) == 5 and not opened.closed:
            opened.commit()
            opened.close()
        if ORDERS in done.snapshots:
            stopping.set()
        database.execute(f"UPDATE items SET sku = 'round {len(rounds)}'", "UPDATE orders SET a = a + 1 WHERE id = 7")

    Follower(shop, lambda: spark, every=0.2, stopping=stopping, report=report).run()
    assert [error for done in rounds for error in done.errors] == []
    assert len(waited) >= 5
    assert {
        (table.name, table.transaction and table.transaction.pid) for done in waited[:5] for table in done.waiting
    } == {(ORDERS, pid)}
    assert any(ORDERS in done.snapshots for done in rounds)
    synced(spark, shop)
    assert_equal(spark, shop, ORDERS, ITEMS)
    versions(shop, ORDERS, ITEMS)
