"""A window read in two halves at once holds the rows of one read, and harms nobody where that cannot be."""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.capture.capture import capture, capture_windows
from spark_jobs.capture.halves import worth_halving
from spark_jobs.capture.session import capture_session
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.configuration import Pipeline
from spark_jobs.logicalrep.lsn import Lsn, Window
from spark_jobs.postgres.flushed_wal import flushed_lsn, wait_until_flushed
from spark_jobs.postgres.slot import spare_slots
from spark_jobs.progress import Step
from tests.fixtures.pipelines import pipeline_of, prepare_slot
from tests.fixtures.servers import Database
from tests.log_rows import log_rows

pytestmark = pytest.mark.postgres

_TABLES = (
    "CREATE TYPE mood AS ENUM ('calm', 'cross')",
    "CREATE TABLE a (id bigint PRIMARY KEY, v text, feels mood DEFAULT 'calm')",
    "CREATE TABLE slow (id bigint PRIMARY KEY, v text)",
    "CREATE TABLE parts (id bigint PRIMARY KEY, v text) PARTITION BY RANGE (id)",
    "CREATE TABLE low PARTITION OF parts FOR VALUES FROM (0) TO (1000)",
    "CREATE TABLE high PARTITION OF parts FOR VALUES FROM (1000) TO (100000)",
)
_IN_HALVES = "is read in halves"


@dataclass(frozen=True)
class Twice:
    """One database with two slots at one LSN: windows of one are read whole, those of the other in halves."""

    whole: Pipeline
    halved: Pipeline

    def capture(self, random_cuts: int = 0) -> None:
        """The same windows in both."""
        lo = ChangeLog(self.halved.lake.change_log).markers()[-1].window.hi
        with capture_session(self.whole) as session:
            hi, rng = flushed_lsn(session.control), random.Random(3)  # noqa: S311
        bounds = [lo, *sorted({Lsn(rng.randrange(lo + 1, hi)) for _ in range(random_cuts)}), hi]
        windows = [Window(a, b) for a, b in pairwise(bounds)]
        for pipeline in (self.whole, self.halved):
            assert [marker.window for marker in capture_windows(pipeline, windows).landed] == windows

    def require_equal(self) -> None:
        whole, halved = messages(self.whole), messages(self.halved)
        assert len(whole) > 50
        assert halved == whole


def messages(pipeline: Pipeline) -> list[dict[str, Any]]:
    """All that the plugin sent, with its place: announcements too."""
    rows = [row for row in log_rows(pipeline) if row["kind"] in "IUDTMRY"]
    first = min(row["window"] for row in rows)  # it depends on the LSN at which the slot was made
    rows = [{**row, "window": row["window"] - first} for row in rows]
    return sorted(rows, key=_place)


def _place(row: dict[str, Any]) -> tuple[object, ...]:
    return row["window"], row["commit_lsn"], row["ordinal"], row["kind"], row["relid"] or 0, row["data"]


def twice(database: Database, folder: Path, **source: Any) -> Twice:
    database.execute(*_TABLES)
    database.execute(
        f"CREATE PUBLICATION {database.name} FOR TABLE a, slow, parts WITH (publish_via_partition_root = true)",
        f"ALTER DATABASE {database.name} SET logical_decoding_work_mem = '64kB'",
        f"ALTER DATABASE {database.name} SET lock_timeout = '5s'",
    )
    made = [
        pipeline_of(database, folder / kind, peek_bytes=0, halved_bytes=limit, slot=f"{database.name}_{kind}", **source)
        for kind, limit in (("whole", 1 << 40), ("halved", 0))
    ]
    for pipeline in made:
        prepare_slot(pipeline)
    # the slots start at two LSNs, so the first window brings both to one
    with database.connect() as connection:
        start = wait_until_flushed(connection, flushed_lsn(connection))
    for pipeline in made:
        assert capture(pipeline, upto=start).landed_end == start
    return Twice(*made)


def workload(database: Database, rounds: int = 12) -> None:
    """Everything that makes the server announce a relation again, transactions that are open for long, messages."""
    with database.connect() as old, database.connect() as other:
        old.execute("BEGIN")
        old.execute("INSERT INTO slow SELECT g, repeat('x', 300) FROM generate_series(1, 200) g")
        for at in range(rounds):
            first = 10_000 * (at + 1)
            database.execute(
                f"INSERT INTO a SELECT g, repeat('y', 100) FROM generate_series({first}, {first + 40}) g",
                f"INSERT INTO parts SELECT g, 'p' FROM generate_series({at * 50}, {at * 50 + 20}) g",
                f"INSERT INTO parts VALUES ({2000 + at}, 'high')",
                f"SELECT pg_logical_emit_message(false, 'p', 'loose {at}')",
                f"SELECT pg_logical_emit_message(true, 'p', 'bound {at}')",
            )
            if at % 3 == 0:
                database.execute("VACUUM ANALYZE a")
            if at % 4 == 1:
                database.execute(f"ALTER TABLE a ADD COLUMN c{at} int DEFAULT {at}")
            if at % 4 == 2:
                database.execute(f"ALTER TABLE a DROP COLUMN c{at - 1}", f"ALTER TYPE mood RENAME TO mood{at}")
                database.execute(f"ALTER TYPE mood{at} RENAME TO mood")
            other.execute("BEGIN")
            other.execute(f"UPDATE a SET v = 'u{at}' WHERE id % 5 = 1")
            database.execute("UPDATE parts SET v = v || 'z' WHERE id % 7 = 0")
            other.execute("COMMIT")
        old.execute("COMMIT")
        database.execute("TRUNCATE parts", "DELETE FROM a WHERE id % 3 = 0")


@pytest.fixture
def debug_log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, logger="spark_jobs.capture.capture")
    return caplog


def test_halves_give_the_rows_of_one_read(
    every_database: Database, tmp_path: Path, debug_log: pytest.LogCaptureFixture
) -> None:
    both = twice(every_database, tmp_path, messages=True)
    workload(every_database)
    both.capture()
    assert _IN_HALVES in debug_log.text
    both.require_equal()
    kinds = {row["kind"] for row in messages(both.halved)}
    assert kinds == set("IUDTMRY")


def test_so_they_do_wherever_a_window_is_cut(
    database: Database, tmp_path: Path, debug_log: pytest.LogCaptureFixture
) -> None:
    both = twice(database, tmp_path)
    workload(database)
    both.capture(random_cuts=12)
    assert debug_log.text.count(_IN_HALVES) > 1
    both.require_equal()


@pytest.mark.parametrize("source", [{"streaming": "on"}, {"two_phase": True}], ids=str)
def test_what_is_sent_across_cuts_is_read_whole(
    database: Database, tmp_path: Path, source: dict[str, Any], debug_log: pytest.LogCaptureFixture
) -> None:
    both = twice(database, tmp_path, **source)
    workload(database)
    both.capture()
    assert _IN_HALVES not in debug_log.text
    both.require_equal()


@pytest.mark.parametrize("free", [2, 1, 0])
def test_slots_that_others_may_need_are_left_free(
    database: Database, tmp_path: Path, free: int, debug_log: pytest.LogCaptureFixture
) -> None:
    both = twice(database, tmp_path)
    workload(database, rounds=4)
    with database.connect() as connection:
        taken = [f"{database.name}_{number}" for number in range(spare_slots(connection) - free)]
        for name in taken:
            connection.execute("SELECT pg_create_physical_replication_slot(%s)", [name])
        assert spare_slots(connection) == free
        try:
            both.capture()
        finally:
            for name in taken:
                connection.execute("SELECT pg_drop_replication_slot(%s)", [name])
    assert _IN_HALVES not in debug_log.text
    both.require_equal()


@pytest.mark.parametrize("half", ["asc", "desc"], ids=["first", "second"])
def test_a_half_whose_session_ends_is_read_again(
    database: Database, tmp_path: Path, half: str, debug_log: pytest.LogCaptureFixture
) -> None:
    both = twice(database, tmp_path)
    workload(database)
    ended: list[object] = []

    # a batch has arrived, so both copies are there or will be soon: end the session that holds one of them
    def end_a_reader(step: Step) -> None:
        if ended or " 0 messages" in step.detail:
            return
        found = database.execute(
            "SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots"
            f" WHERE temporary AND database = '{database.name}' ORDER BY confirmed_flush_lsn {half} LIMIT 1"
        )
        ended.extend(found)

    capture(both.whole)
    report = capture(both.halved, progress=end_a_reader)
    assert ended == [(True,)]
    assert report.caught_up
    assert debug_log.text.count(_IN_HALVES) >= 1
    assert (
        database.execute(f"SELECT 1 FROM pg_replication_slots WHERE temporary AND database = '{database.name}'") == []
    )
    both.require_equal()


def test_the_source_does_not_decode_a_backlog_twice(database: Database, tmp_path: Path) -> None:
    both = twice(database, tmp_path)
    workload(database, rounds=1)
    with capture_session(both.halved) as session:
        slot, options = session.slot, session.identity.options
        assert slot.restart_lsn is not None
        lo = session.checkpoint.window.hi
        behind = lo - slot.restart_lsn
        assert behind > 0

        def is_halved(size: int) -> bool:
            return worth_halving(session.control, slot.slot_name, Window(lo, Lsn(lo + size)), options, 0)

        assert is_halved(2 * behind)
        assert not is_halved(2 * behind - 2)
        assert not worth_halving(session.control, slot.slot_name, Window(lo, Lsn(lo + 4 * behind)), options, 4 * behind)
