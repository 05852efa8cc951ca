"""A day's or an hour's cut shows exactly what was committed before its end. No Spark.

Commit times cannot be chosen, so the ends are: each is an instant that the source's clock had between two transactions.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from psycopg import sql

from spark_jobs.apply.apply import apply
from spark_jobs.capture import period_ends
from spark_jobs.capture.capture import capture
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.configuration import Pipeline, WindowLimits
from spark_jobs.maintain.maintain import maintain
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.recover import recover
from spark_jobs.replay.consistent_cut import ConsistentCut, Incomplete, consistent_cut, period_cut
from spark_jobs.run import Run
from spark_jobs.sync import sync
from tests.at_night import at_night
from tests.fixtures.background import endless, in_background
from tests.fixtures.no_spark import no_spark, synced_without_spark
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database
from tests.fixtures.standbys import base_backup, copy_started, wait_for_replay

pytestmark = pytest.mark.postgres

TABLES = ("public.checking", "public.savings", "public.moves")
ACCOUNTS = 20
TOTAL = 2 * ACCOUNTS * 100
CREATE = (
    *(f"CREATE TABLE {table} (id int PRIMARY KEY, balance bigint NOT NULL)" for table in ("checking", "savings")),
    *(f"INSERT INTO {table} SELECT g, 100 FROM generate_series(1, {ACCOUNTS}) g" for table in ("checking", "savings")),
    "CREATE TABLE moves (xid bigint PRIMARY KEY)",
)


@dataclass(frozen=True)
class Instants:
    """Periods that end when the test says so."""

    ended: list[datetime] = field(default_factory=list)

    def ends(self, after: datetime, until: datetime) -> Iterator[datetime]:
        return (end for end in self.ended if after < end <= until)


@dataclass(frozen=True)
class Accounts:
    """Money that moves between two tables, and the days that end meanwhile."""

    database: Database
    pipeline: Pipeline
    days: Instants

    def end_day(self) -> datetime:
        """Now, by the source's clock."""
        ((now,),) = self.database.execute("SELECT clock_timestamp()")
        assert isinstance(now, datetime)
        self.days.ended.append(now.astimezone(UTC))
        return self.days.ended[-1]

    def move(self, *more: str) -> None:
        with self.database.connect() as connection:
            transfer(connection, random.Random(len(self.days.ended)), more)  # noqa: S311

    def in_source(self) -> dict[str, list[tuple[Any, ...]]]:
        return {table: sorted(self.database.execute(f"SELECT * FROM {table}")) for table in TABLES}

    def in_lake(self, cut: ConsistentCut | Incomplete) -> dict[str, list[tuple[Any, ...]]]:
        assert isinstance(cut, ConsistentCut), cut
        replicated = [table for table in cut.tables if table.name.nspname == "public"]
        return {str(table.name): rows(DeltaTable(table.path, version=table.delta_version)) for table in replicated}

    def at(self, end: datetime) -> dict[str, list[tuple[Any, ...]]]:
        return self.in_lake(period_cut(self.pipeline, end))


def rows(table: DeltaTable) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.to_pyarrow_table().to_pylist())


def transfer(connection: psycopg.Connection[Any], chance: random.Random, more: tuple[str, ...] = ()) -> None:
    """Low numbers first: no deadlock."""
    account, amount = chance.randint(1, ACCOUNTS), chance.randint(1, 50)
    with connection.transaction():
        connection.execute("UPDATE checking SET balance = balance - %s WHERE id = %s", [amount, account])
        connection.execute("UPDATE savings SET balance = balance + %s WHERE id = %s", [amount, account])
        connection.execute("INSERT INTO moves VALUES (pg_current_xact_id()::text::bigint)")
        for statement in more:
            connection.execute(statement)


@pytest.fixture
def accounts(database: Database, tmp_path: Path) -> Accounts:
    return followed(database, tmp_path / "lake")


def followed(database: Database, lake: Path, **source: Any) -> Accounts:
    """The tables have their first snapshot, and no day has ended yet."""
    database.execute(*CREATE)
    days = Instants()
    pipeline = replace(pipeline_of(database, lake, *TABLES, **source), periods=(days,))
    synced_without_spark(pipeline)
    accounts = Accounts(database, pipeline, days)
    accounts.move()
    synced_without_spark(pipeline)  # from here on ends are known
    return accounts


def committed_before(pipeline: Pipeline, end: datetime) -> set[int]:
    """The transactions that come before the first one that committed after ``end``, by the raw log."""
    log = ChangeLog(pipeline.lake.change_log)
    commits = sorted(
        {
            (row["commit_lsn"], row["commit_time"], row["xid"])
            for batch in log.scan(pc.field("xid").is_valid(), ["commit_lsn", "commit_time", "xid"])
            for row in batch.to_pylist()
        }
    )
    first = next((lsn for lsn, time, _ in commits if time > end), None)
    return {xid for lsn, _, xid in commits if first is None or lsn < first}


@pytest.mark.parametrize("synced_on_the_way", [False, at_night(True)], ids=["in a backlog", "as they end"])
def test_under_load_each_day_shows_exactly_what_was_committed_before_its_end(
    accounts: Accounts, synced_on_the_way: bool
) -> None:
    database, pipeline = accounts.database, accounts.pipeline
    small = replace(pipeline, windows=WindowLimits(max_bytes=64 << 10, max_per_run=3))
    with in_background(*(endless(transfer, database, seed) for seed in (1, 2, 3)), pause=0.002):
        for _ in range(4):
            threading.Event().wait(0.15)
            accounts.end_day()
            if synced_on_the_way:
                synced_without_spark(small)
        threading.Event().wait(0.1)
    synced_without_spark(small)
    before: set[int] = set()
    for end in accounts.days.ended:
        day = accounts.at(end)
        assert sum(balance for table in TABLES[:2] for _, balance in day[table]) == TOTAL
        moved = {xid for (xid,) in day["public.moves"]}
        assert moved > before, "nothing happened that day"
        assert moved == committed_before(pipeline, end)
        before = moved
        assert consistent_cut(pipeline, end) == period_cut(pipeline, end)
    assert accounts.in_lake(consistent_cut(pipeline)) == accounts.in_source()


@pytest.mark.nightly
def test_seven_days_equal_copies_of_the_source_taken_then(accounts: Accounts) -> None:
    """Some are captured as they end, some later; some are quiet."""
    copies = {}
    for day in range(7):
        if day != 3:
            accounts.move()
        end = accounts.end_day()
        copies[end] = accounts.in_source()
        if day in (1, 2, 5):
            accounts.move()
            synced_without_spark(accounts.pipeline)
    accounts.move()
    synced_without_spark(accounts.pipeline)
    assert {end: accounts.at(end) for end in copies} == copies


@pytest.mark.nightly
def test_with_the_text_plugin(database: Database, tmp_path: Path) -> None:
    """Its lines do not say where a transaction's commit record begins."""
    accounts = followed(database, tmp_path / "lake", plugin="test_decoding")
    copies = {}
    for _ in range(3):
        accounts.move()
        copies[accounts.end_day()] = accounts.in_source()
    accounts.move()
    synced_without_spark(accounts.pipeline)
    assert {end: accounts.at(end) for end in copies} == copies
    assert accounts.in_lake(consistent_cut(accounts.pipeline)) == accounts.in_source()


@pytest.mark.parametrize("source", [{"streaming": "on", "two_phase": True, "messages": True}, at_night({})], ids=str)
def test_transactions_that_are_open_when_a_day_ends(database: Database, tmp_path: Path, source: dict[str, Any]) -> None:
    """One that is prepared and one that has been sent in part belong to the day in which they commit."""
    database.execute(f"ALTER DATABASE {database.name} SET logical_decoding_work_mem = '64kB'")
    accounts = followed(database, tmp_path / "lake", **source)
    gid, large = database.name, "INSERT INTO moves SELECT 1000000 + g FROM generate_series(1, 5000) g"
    copies = {}
    with database.connect() as prepared, database.connect() as streamed, streamed.transaction():
        prepared.execute("BEGIN")
        prepared.execute("UPDATE checking SET balance = balance + 7 WHERE id = 1")
        prepared.execute(sql.SQL("PREPARE TRANSACTION {}").format(sql.Literal(gid)))
        streamed.execute(large)
        synced_without_spark(accounts.pipeline)
        database.execute(
            "SELECT pg_logical_emit_message(true, 'day', 'last'), pg_logical_emit_message(false, 'day', '')"
        )
        copies[accounts.end_day()] = accounts.in_source()
        prepared.execute(sql.SQL("COMMIT PREPARED {}").format(sql.Literal(gid)))
        copies[accounts.end_day()] = accounts.in_source()
    synced_without_spark(accounts.pipeline)
    copies[accounts.end_day()] = accounts.in_source()
    accounts.move()
    synced_without_spark(accounts.pipeline)
    assert len({str(copy) for copy in copies.values()}) == 3
    assert {end: accounts.at(end) for end in copies} == copies
    assert accounts.in_lake(consistent_cut(accounts.pipeline)) == accounts.in_source()


@pytest.mark.nightly
def test_a_pipeline_that_reads_a_standby(database: Database, tmp_path: Path) -> None:
    """Its days end by the commit times of its primary, and with the primary's next transaction."""
    name, primary = database.name, database.server
    database.execute(*CREATE, f"CREATE PUBLICATION {name} FOR TABLE checking, savings, moves")
    with base_backup(primary, standby=True) as folder, copy_started(primary, folder) as standby:
        days = Instants()
        pipeline = pipeline_of(database, tmp_path / "lake", *TABLES, dsn=standby.dsn(name))
        pipeline = replace(pipeline, periods=(days,))
        accounts = Accounts(database, pipeline, days)

        def follow() -> None:
            wait_for_replay(primary, standby)
            synced_without_spark(pipeline)

        with in_background(standby_snapshots(database), pause=0.1):
            follow()
            accounts.move()
            follow()
            copies = {}
            for _ in range(3):
                accounts.move()
                copies[accounts.end_day()] = accounts.in_source()
                accounts.move()
                follow()
            assert {end: accounts.at(end) for end in copies} == copies


def standby_snapshots(database: Database) -> Generator[None]:
    """A slot of a standby begins where its primary has written which transactions are running."""
    with database.connect() as connection:
        while True:
            connection.execute("SELECT pg_log_standby_snapshot()")
            yield


def test_a_day_that_ends_just_where_a_window_did(accounts: Accounts) -> None:
    """Nothing is landed between the end of that window and the first transaction of the next day."""
    accounts.move()
    synced_without_spark(accounts.pipeline)
    end, copy = accounts.end_day(), accounts.in_source()
    accounts.move()
    synced_without_spark(accounts.pipeline)
    assert accounts.at(end) == copy != accounts.in_source()


def test_a_quiet_source_ends_its_days_by_its_clock(accounts: Accounts, monkeypatch: pytest.MonkeyPatch) -> None:
    accounts.move()
    end, copy = accounts.end_day(), accounts.in_source()
    synced_without_spark(accounts.pipeline)
    cut = period_cut(accounts.pipeline, end)
    assert isinstance(cut, Incomplete), "somebody may be committing still"
    assert cut.why.startswith(f"what was committed before {end.isoformat()} is not captured yet")
    monkeypatch.setattr(period_ends, "_COMMITTING", timedelta(0))
    synced_without_spark(accounts.pipeline)
    assert accounts.at(end) == copy
    known = period_cut(accounts.pipeline, end)
    synced_without_spark(accounts.pipeline)
    accounts.move()
    synced_without_spark(accounts.pipeline)
    assert period_cut(accounts.pipeline, end) == known


def test_no_day_ends_before_the_pipeline_begins(accounts: Accounts) -> None:
    earlier = datetime.now(UTC) - timedelta(hours=5)
    accounts.days.ended.append(earlier)
    accounts.move()
    synced_without_spark(accounts.pipeline)
    cut = period_cut(accounts.pipeline, earlier)
    assert isinstance(cut, Incomplete)
    assert cut.why.startswith(f"there is no cut at {earlier.isoformat()}: time_partitions was not configured then")


def test_a_run_over_some_tables_leaves_no_day_out(accounts: Accounts) -> None:
    """The others are brought to its end first."""
    pipeline = accounts.pipeline
    accounts.move()
    end, copy = accounts.end_day(), accounts.in_source()
    accounts.move()
    capture(pipeline)
    only = QualifiedName("public", "savings")
    report = apply(Run(pipeline, no_spark), [only])
    assert [table.name for table in report.tables] == [only]
    assert rows(DeltaTable(pipeline.lake.table(only))) == accounts.in_source()["public.savings"]
    assert accounts.at(end) == copy


def test_killed_before_the_cut_is_written(accounts: Accounts, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = accounts.pipeline
    accounts.move()
    end, copy = accounts.end_day(), accounts.in_source()
    accounts.move()
    capture(pipeline)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("spark_jobs.apply.apply.write_cut", killed)
        with pytest.raises(KeyboardInterrupt):
            apply(Run(pipeline, no_spark))
    accounts.move()
    synced_without_spark(pipeline)
    assert accounts.at(end) == copy


@pytest.mark.parametrize("waits", [True, at_night(False)])
def test_a_table_that_stopped(accounts: Accounts, waits: bool) -> None:
    """Once it goes on, it is added to the days that it was missing from."""
    database, pipeline = accounts.database, accounts.pipeline
    database.execute("CREATE TABLE due (id int PRIMARY KEY, day date)", "INSERT INTO due VALUES (0, '2026-01-01')")
    pipeline = replace(pipeline_of(database, Path(pipeline.lake.path), *TABLES, "public.due"), periods=pipeline.periods)
    synced_without_spark(pipeline)
    database.execute("INSERT INTO due VALUES (1, 'infinity')")
    copies = {}
    for _ in range(3):
        accounts.move("UPDATE due SET id = id + 10")
        end = accounts.end_day()
        copies[end] = {
            **accounts.in_source(),
            "public.due": database.execute("SELECT id, NULLIF(day, 'infinity') FROM due"),
        }
        accounts.move()
        assert len(sync(pipeline, no_spark).errors) == 1
    for end, copy in copies.items():
        cut = period_cut(pipeline, end, waits=waits)
        if waits:
            assert isinstance(cut, Incomplete)
            assert cut.why.startswith(f"public.due cannot be brought to {end.isoformat()}, LSN")
        else:
            assert accounts.in_lake(cut) == {name: copy[name] for name in TABLES}
    mended = replace(pipeline, on_unrepresentable="null")
    synced_without_spark(mended)
    found = {end: accounts.in_lake(period_cut(mended, end, waits=waits)) for end in copies}
    assert found == {end: {name: sorted(rows) for name, rows in copy.items()} for end, copy in copies.items()}
    assert {str(table.name) for table in consistent_cut(mended).tables} == {*TABLES, "public.due"}


@pytest.mark.nightly
def test_a_day_that_ends_within_a_break_says_so(accounts: Accounts) -> None:
    database, pipeline = accounts.database, accounts.pipeline
    accounts.move()
    whole, copy = accounts.end_day(), accounts.in_source()
    accounts.move()
    synced_without_spark(pipeline)
    database.execute("SELECT pg_drop_replication_slot(current_database())")
    accounts.move()
    broken = accounts.end_day()
    accounts.move()
    threading.Event().wait(1)  # when a break was noticed is noted to the second
    assert recover(pipeline, no_spark).errors == ()
    synced_without_spark(pipeline)
    accounts.move()
    after, later = accounts.end_day(), accounts.in_source()
    accounts.move()
    synced_without_spark(pipeline)
    assert accounts.at(whole) == copy
    cut = period_cut(pipeline, broken)
    assert isinstance(cut, Incomplete)
    assert cut.why.startswith(f"{broken.isoformat()} lies in the break before LSN")
    assert accounts.at(after) == later


@pytest.mark.nightly
def test_maintenance_keeps_the_versions_of_days(accounts: Accounts) -> None:
    copies = {}
    for _ in range(3):
        accounts.move()
        copies[accounts.end_day()] = accounts.in_source()
        accounts.move()
        synced_without_spark(accounts.pipeline)
    assert maintain(accounts.pipeline, no_spark).errors == ()
    accounts.move()
    synced_without_spark(accounts.pipeline)
    assert {end: accounts.at(end) for end in copies} == copies


def test_without_periods_nothing_is_looked_for(database: Database, tmp_path: Path) -> None:
    database.execute(*CREATE)
    pipeline = pipeline_of(database, tmp_path / "lake", *TABLES)
    synced_without_spark(pipeline)
    database.execute("UPDATE savings SET balance = 1")
    synced_without_spark(pipeline)
    assert {marker.periods for marker in ChangeLog(pipeline.lake.change_log).markers()} == {None}
