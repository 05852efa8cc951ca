"""Each way in which a slot is lost, or no longer fits the log: told in one line before anything is written, the old
tables readable, and mended by ``recover``."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from pydantic import SecretStr

from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.apply.apply import apply
from spark_jobs.capture.capture import capture
from spark_jobs.errors import RECOVER, BreakError, PreconditionError
from spark_jobs.lake.cuts import latest_cut
from spark_jobs.lake.table_state import TableState, table_states
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.recover import RecoverReport, recover
from spark_jobs.replay.consistent_cut import consistent_cut
from spark_jobs.run import Run
from spark_jobs.sync import SyncReport, sync
from spark_jobs.verify.verify import verify
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database, fresh_database, started
from tests.fixtures.spark import for_few_rows
from tests.fixtures.standbys import base_backup, copy_started, promote, wait_for_replay
from tests.spark.crash import started as crashing
from tests.spark.followed_pipeline import Followed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

NAMES = tuple(QualifiedName("public", table) for table in ("orders", "items", "idle"))
TABLES = (
    "CREATE TABLE orders (id int PRIMARY KEY, v text)",
    "CREATE TABLE items (id int PRIMARY KEY, v text)",
    "CREATE TABLE idle (id int PRIMARY KEY, v text)",
    *(f"INSERT INTO {name.relname} SELECT g, 'first' FROM generate_series(1, 20) g" for name in NAMES),
)
DROP = "SELECT pg_drop_replication_slot(current_database())"
CREATE = "SELECT pg_create_logical_replication_slot(current_database(), 'pgoutput')"
ADVANCE = "SELECT pg_replication_slot_advance(current_database(), pg_current_wal_flush_lsn())"


def changes(word: str) -> tuple[str, ...]:
    """Of every kind, in tables that had changed before; ``idle`` stays idle."""
    return (
        f"UPDATE orders SET v = '{word}' WHERE id % 2 = 0",
        "DELETE FROM orders WHERE id = (SELECT max(id) FROM orders WHERE id < 20)",
        f"INSERT INTO items SELECT max(id) + 1, '{word}' FROM items",
    )


def shop_of(spark: SparkSession, database: Database, lake: Path) -> Followed:
    pipeline = pipeline_of(database, lake, *map(str, NAMES))
    return Followed(spark, database, pipeline, NAMES)


def at(shop: Followed, database: Database) -> Followed:
    """The same pipeline, with another server behind its address."""
    source = replace(shop.pipeline.source, dsn=SecretStr(database.dsn))
    return replace(shop, database=database, pipeline=replace(shop.pipeline, source=source))


def synced(shop: Followed) -> SyncReport:
    report = sync(shop.pipeline, lambda: shop.spark)
    assert report.errors == ()
    shop.assert_equal()
    return report


def told(shop: Followed, words: str) -> None:
    """By sync, once, in one line; and nothing was written."""
    before = len(shop.markers), states(shop)
    with pytest.raises(BreakError, match=words) as caught:
        sync(shop.pipeline, lambda: shop.spark)
    assert str(caught.value).endswith(RECOVER)
    assert "\n" not in str(caught.value)
    assert (len(shop.markers), states(shop)) == before


def recovered(shop: Followed) -> RecoverReport:
    """All tables read again, once."""
    before, landed = states(shop), shop.markers
    report = recover(shop.pipeline, lambda: shop.spark)
    assert report.errors == ()
    assert report.chapter is not None
    assert report.chapter.broke is not None
    assert (report.chapter.broke.before, report.chapter.ordinal) == (landed[-1].identity, landed[-1].ordinal + 1)
    assert {taken.name for taken in report.snapshots} == set(NAMES)
    shop.assert_equal()
    assert {name: state.commits - before[name].commits for name, state in states(shop).items()} == dict.fromkeys(
        NAMES, 1
    )
    return report


def goes_on(shop: Followed) -> None:
    """Change by change, as before any break; and there is nothing left to recover."""
    shop.database.execute(*changes("after"))
    assert synced(shop).snapshots == ()
    assert recover(shop.pipeline, lambda: shop.spark).nothing_to_do
    cut = latest_cut(shop.pipeline.lake)
    assert cut is not None
    assert {table.name for table in cut.tables} == set(NAMES)
    assert [marker.ordinal for marker in shop.markers] == list(range(len(shop.markers)))


def states(shop: Followed) -> dict[QualifiedName, TableState]:
    found = table_states(shop.pipeline.lake, NAMES, shop.markers[-1].identity)
    return {name: state for name, state in found.items() if isinstance(state, TableState)}


def begun(shop: Followed) -> bool:
    return shop.markers[-1].broke is not None


def other_slot(database: Database) -> list[tuple[object, ...]]:
    return database.execute(
        "SELECT slot_name, confirmed_flush_lsn, restart_lsn, wal_status FROM pg_replication_slots"
        " WHERE slot_name = current_database() || '_other'"
    )


def test_on_the_same_server(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    database.execute(*TABLES)
    shop = shop_of(spark, database, tmp_path / "lake")
    synced(shop)
    assert recover(shop.pipeline, lambda: spark).nothing_to_do, "a slot that is healthy is left alone"
    database.execute("SELECT pg_create_logical_replication_slot(current_database() || '_other', 'pgoutput')")
    other = other_slot(database)

    database.execute(*changes("one"), DROP, *changes("two"))
    told(shop, r"slot \w+ is gone, and the change log ends at \w+/\w+: the changes since then are lost")
    assert all("is gone" in taken.reason for taken in recovered(shop).snapshots)

    database.execute(*changes("three"), DROP, CREATE, *changes("four"))
    told(shop, "ahead of the change log, .* it was re-created, read or moved by someone else")
    recovered(shop)

    database.execute(*changes("five"), ADVANCE, *changes("six"))
    told(shop, "ahead of the change log, .* it was re-created, read or moved by someone else")
    recovered(shop)
    goes_on(shop)
    assert other_slot(database) == other


def test_a_slot_that_the_server_has_invalidated(spark: SparkSession, tmp_path: Path) -> None:
    """18, for both reasons; a server of its own, as its settings hold for all slots."""
    with started(18) as server, fresh_database(server) as database:
        database.execute(*TABLES)
        shop = shop_of(spark, database, tmp_path / "lake")
        synced(shop)
        set_on(database, max_slot_wal_keep_size="16MB")
        for _ in range(4):
            database.execute(*changes("lost"), "SELECT pg_switch_wal()")
        database.execute("CHECKPOINT")
        told(shop, r"slot \w+ is lost: the server has invalidated it \(wal_removed\)")
        recovered(shop)
        set_on(database, idle_replication_slot_timeout="1s")
        time.sleep(1.5)
        database.execute(*changes("lost again"), "CHECKPOINT")
        set_on(database, idle_replication_slot_timeout="0")
        told(shop, r"slot \w+ is lost: the server has invalidated it \(idle_timeout\)")
        recovered(shop)
        goes_on(shop)


def set_on(database: Database, **settings: str) -> None:
    database.execute(*(f"ALTER SYSTEM SET {name} = '{value}'" for name, value in settings.items()))
    database.execute("SELECT pg_reload_conf()")


def test_a_publication_that_was_missing_for_a_time(
    spark: SparkSession, postgres_15: PostgresServer, tmp_path: Path
) -> None:
    """Up to 17 the server can never decode again what was written meanwhile."""
    with fresh_database(postgres_15) as database:
        database.execute(*TABLES)
        shop = shop_of(spark, database, tmp_path / "lake")
        synced(shop)
        database.execute(f"DROP PUBLICATION {database.name}", *changes("unseen"))
        told(shop, 'changes were made while the publication was missing .*publication "\\w+" does not exist')
        recovered(shop)
        goes_on(shop)


def test_killed_at_each_step_in_turn(
    spark: SparkSession, database: Database, tmp_path: Path, jars_folder: Path
) -> None:
    database.execute(*TABLES)
    shop = shop_of(spark, database, tmp_path / "lake")
    options = for_few_rows(jars_folder)
    shop = replace(shop, pipeline=replace(shop.pipeline, spark=options))
    synced(shop)
    database.execute(*changes("one"), DROP, *changes("two"))
    before = states(shop)

    def read() -> list[QualifiedName]:
        return [name for name, state in states(shop).items() if state.commits > before[name].commits]

    assert crashing("recover_slot_made", shop.pipeline, tmp_path).wait(180) == -signal.SIGKILL
    assert database.execute("SELECT count(*) FROM pg_replication_slots WHERE slot_name = current_database()") == [(1,)]
    assert not begun(shop)
    told(shop, "ahead of the change log")

    assert crashing("recover_chapter_begun", shop.pipeline, tmp_path).wait(180) == -signal.SIGKILL
    assert begun(shop)
    assert read() == []
    assert {len(shop.lake_rows(name)[0]) for name in NAMES} == {20}, "the old tables are readable"

    assert crashing("recover_between_snapshots", shop.pipeline, tmp_path).wait(180) == -signal.SIGKILL
    assert 0 < len(read()) < len(NAMES)
    database.execute(*changes("three"))
    waiting = apply(Run(shop.pipeline, lambda: spark))
    assert len(waiting.errors) == len(NAMES) - len(read())
    assert all("needs a re-snapshot: the slot stands" in str(error) for error in waiting.errors)

    left = set(NAMES) - set(read())
    report = recover(shop.pipeline, lambda: spark)
    assert (report.errors, report.chapter) == ((), None)
    assert {taken.name for taken in report.snapshots} == left
    assert synced(shop).snapshots == ()
    # exactly once: one snapshot for each table, whichever run took it, and one commit for the changes since
    assert all(state.commits - before[name].commits <= 2 for name, state in states(shop).items())
    assert sum(marker.broke is not None for marker in shop.markers) == 1


def test_another_cluster_and_back_again(
    spark: SparkSession, postgres_17: PostgresServer, server: PostgresServer, tmp_path: Path
) -> None:
    """LSNs, transaction numbers and OIDs have nothing to do with each other, and go back at least once."""
    with fresh_database(server) as first, fresh_database(postgres_17, first.name) as second:
        first.execute(*TABLES)
        shop = shop_of(spark, first, tmp_path / "lake")
        synced(shop)
        first.execute(*changes("landed"))
        synced(shop)
        moved = at(shop, second)
        with pytest.raises(PreconditionError, match=r"there is no table public\.orders"):
            recover(moved.pipeline, lambda: spark)  # the wrong database: nothing is begun there
        assert second.execute("SELECT 1 FROM pg_replication_slots") == []
        second.execute(*TABLES, *changes("elsewhere"), "DELETE FROM idle WHERE id > 3")
        told(
            moved, r"of another cluster \(system identifier\): it has \d+, now it is \d+: point the configuration back"
        )
        recovered(moved)
        first.execute(*changes("again"), "DELETE FROM idle WHERE id > 5")
        told(shop, "of another cluster")
        recovered(shop)
        goes_on(shop)
        begins = [marker.window.lo for marker in shop.markers if marker.broke is not None]
        ends = [marker.broke.end for marker in shop.markers if marker.broke is not None]
        assert any(lo < end for lo, end in zip(begins, ends, strict=True))
        verified = verify(shop.pipeline, lambda: spark).tables
        assert [(table.verdict, table.error) for table in verified] == [("equal", None)] * len(NAMES)
        cut = consistent_cut(shop.pipeline)
        assert cut.commit_time is not None
        assert consistent_cut(shop.pipeline, cut.commit_time) == cut


def test_a_backup_restored_and_a_standby_promoted(spark: SparkSession, tmp_path: Path) -> None:
    """15: no slot comes along with either."""
    with ExitStack() as servers, started(15) as primary:
        database = kept_database(primary)
        database.execute(*TABLES)
        shop = shop_of(spark, database, tmp_path / "lake")
        synced(shop)
        standby_folder = servers.enter_context(base_backup(primary, standby=True))
        standby = servers.enter_context(copy_started(primary, standby_folder))
        backup_folder = servers.enter_context(base_backup(primary))
        database.execute("SELECT pg_switch_wal()", *changes("after the backup"))
        synced(shop)
        wait_for_replay(primary, standby)

        with copy_started(primary, backup_folder) as restored:
            of_backup = at(shop, replace(database, server=restored))
            told(of_backup, "the server's WAL ends at .*, before the change log, .* it was restored from a backup")
            recovered(of_backup)

        promote(standby)
        promoted = at(shop, replace(database, server=standby))
        told(
            promoted, r"read on timeline 1 up to .*, and the server is on timeline 2, which left it at|slot \w+ is gone"
        )
        recovered(promoted)
        goes_on(promoted)
        assert promoted.markers[-1].identity.timeline == 2


def test_a_failover_slot_goes_on_by_itself_or_is_recovered(spark: SparkSession, tmp_path: Path) -> None:
    """17: where all that is landed had reached the standby, nothing is read again; where not, all tables are."""
    with ExitStack() as servers:
        primary = servers.enter_context(started(17))
        database = kept_database(primary)
        database.execute(
            *TABLES, "SELECT pg_create_logical_replication_slot(current_database(), 'pgoutput', false, false, true)"
        )
        shop = shop_of(spark, database, tmp_path / "lake")
        synced(shop)
        standby = servers.enter_context(standby_with_slots(database))
        database.execute(*changes("before the failover"))
        synced(shop)
        sync_slots(shop, standby)
        promote(standby)
        promoted = at(shop, replace(database, server=standby))
        promoted.database.execute(*changes("after the failover"))
        assert synced(promoted).snapshots == ()
        assert [marker.broke for marker in promoted.markers] == [None] * len(promoted.markers)
        assert [marker.identity.timeline for marker in promoted.markers][-1] == 2

        second = servers.enter_context(standby_with_slots(promoted.database))
        sync_slots(promoted, second)
        stop_receiving(second)
        promoted.database.execute(*changes("landed, and lost with the server"))
        synced(promoted)
        promote(second)
        again = at(shop, replace(database, server=second))
        told(again, r"read on timeline 2 up to .*, and the server is on timeline 3, which left it at")
        recovered(again)
        goes_on(again)


def kept_database(server: PostgresServer) -> Database:
    """Dropped with its server: that may be gone before the test ends."""
    database = Database(server, "shop")
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE shop")
    return database


@contextmanager
def standby_with_slots(database: Database) -> Iterator[PostgresServer]:
    """https://www.postgresql.org/docs/current/logicaldecoding-explanation.html (Replication Slot Synchronization)"""
    primary = database.server
    database.execute("SELECT pg_create_physical_replication_slot('standby', true)")
    settings = {"primary_slot_name": "standby", "hot_standby_feedback": "on"}
    with base_backup(primary, standby=True) as folder, copy_started(primary, folder, settings) as standby:
        yield standby


def sync_slots(shop: Followed, standby: PostgresServer) -> None:
    """Until the standby keeps the slot for good: for that it must have come past where the standby began."""
    copy = replace(shop.database, server=standby)
    kept = "SELECT 1 FROM pg_replication_slots WHERE slot_name = current_database() AND synced AND NOT temporary"
    deadline = time.monotonic() + 60
    while not copy.execute(kept):
        assert time.monotonic() < deadline, "the slot does not reach the standby"
        shop.database.execute("SELECT pg_log_standby_snapshot()")
        capture(shop.pipeline)
        wait_for_replay(shop.database.server, standby)
        copy.execute("SELECT pg_sync_replication_slots()")


def stop_receiving(standby: PostgresServer) -> None:
    with psycopg.connect(standby.dsn(), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET primary_conninfo = ''")
        connection.execute("SELECT pg_reload_conf()")
        while connection.execute("SELECT 1 FROM pg_stat_wal_receiver").fetchall():
            time.sleep(0.05)
