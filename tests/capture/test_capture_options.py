"""Streams and prepared transactions from live servers: the log holds what protocol 1 gives for the same WAL."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest

from spark_jobs.capture.capture import capture, capture_windows
from spark_jobs.capture.plugins import plugin_options
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Pipeline, WindowLimits
from spark_jobs.logicalrep.lsn import Lsn, Window
from spark_jobs.postgres.slot import Options
from tests.at_night import at_night
from tests.fixtures.pipelines import pipeline_of, prepare_slot
from tests.fixtures.servers import Database
from tests.log_rows import log_rows

pytestmark = pytest.mark.postgres

# a and b are written by everybody; d is altered and truncated, which waits for all who write it; o is left open
NAMES = ("a", "b", "d", "o")
TABLES = tuple(f"CREATE TABLE {name} (id bigint PRIMARY KEY, v text)" for name in NAMES)
# about 40 rows fill 64 kB: every statement of this size is streamed, in several blocks
WIDE = "INSERT INTO {} SELECT g, repeat(md5(g::text), 10) FROM generate_series({}, {}) g"
Session = psycopg.Connection[tuple[object, ...]]


@dataclass(frozen=True)
class LoggedChange:
    """All that the log says of a change, but the window and the origin's LSN, which a stream does not tell."""

    commit_lsn: int
    ordinal: int
    xid: int
    commit_time: object
    origin: str | None
    kind: str
    relid: int | None
    version: int | None
    data: bytes


def logged(pipeline: Pipeline) -> list[LoggedChange]:
    landed = log_rows(pipeline)
    rows = [row for row in landed if row["kind"] in "IUDTM"]
    announced = {(row["window"], row["version"]) for row in landed if row["kind"] == "R"}
    assert all((row["window"], row["version"]) in announced for row in rows if row["kind"] in "IUD")
    names = LoggedChange.__annotations__
    found = [LoggedChange(**{name: row[name] for name in names}) for row in rows]
    return sorted(found, key=lambda change: (change.commit_lsn, change.ordinal, change.kind, change.relid or 0))


@dataclass(frozen=True)
class Pair:
    """One database with two slots at one LSN: one read as asked, the other with protocol 1."""

    asked: Pipeline
    plain: Pipeline

    def capture(self, cuts: list[Lsn] | None = None) -> tuple[WindowMarker, ...]:
        """Both, up to one LSN; ``asked`` in windows cut at ``cuts``."""
        landed = capture(self.plain).landed
        assert len(landed) == 1
        checkpoint = ChangeLog(self.asked.lake.change_log).checkpoint()
        assert checkpoint is not None
        lo, hi = checkpoint.window.hi, landed[0].window.hi
        bounds = [lo, *sorted({cut for cut in cuts or [] if lo < cut < hi}), hi]
        return capture_windows(self.asked, [Window(a, b) for a, b in pairwise(bounds)]).landed


def pair(database: Database, folder: Path, *, peek_bytes: int = WindowLimits.peek_bytes, **options: Any) -> Pair:
    database.execute(
        *TABLES,
        f"ALTER DATABASE {database.name} SET logical_decoding_work_mem = '64kB'",
        f"ALTER DATABASE {database.name} SET lock_timeout = '5s'",
        f"CREATE PUBLICATION {database.name} FOR TABLE {', '.join(NAMES)}",
    )
    messages = options.get("messages", False)
    plain = pipeline_of(database, folder / "plain", *NAMES, peek_bytes=peek_bytes, proto_version=1, messages=messages)
    asked = pipeline_of(
        database, folder / "asked", *NAMES, peek_bytes=peek_bytes, slot=f"{database.name}_asked", **options
    )
    prepare_slot(plain)
    prepare_slot(asked)
    return Pair(asked, plain)


def workload(database: Database, seed: int = 1) -> None:
    """Interleaved large transactions with savepoints released and rolled back, nested; a whole one aborted; DDL and
    TRUNCATE in a stream; prepared ones, committed and rolled back; plain small ones in between."""
    rng = random.Random(seed)  # noqa: S311
    with database.connect() as first, database.connect() as second, database.connect() as third:
        for session in (first, second, third):
            session.execute("BEGIN")
        statement(first, WIDE.format("a", 1, 90))
        statement(second, WIDE.format("b", 1001, 1090))
        statement(first, "SAVEPOINT s1", WIDE.format("b", 1, 60), "SAVEPOINT s2", WIDE.format("a", 101, 160))
        database.execute(f"INSERT INTO a VALUES ({100_000 + rng.randrange(1000)}, 'small') ON CONFLICT DO NOTHING")
        statement(third, WIDE.format("a", 3001, 3090), "SAVEPOINT s", WIDE.format("a", 3101, 3190))
        statement(
            first, "ROLLBACK TO s2", WIDE.format("a", 201, 260), "RELEASE s1", "UPDATE a SET v = 'x' WHERE id < 9"
        )
        statement(
            second, "SAVEPOINT s", "ALTER TABLE d ADD COLUMN c int", WIDE.format("d", 1201, 1260), "ROLLBACK TO s"
        )
        statement(second, WIDE.format("b", 1301, 1360), "SAVEPOINT t", "DELETE FROM b WHERE id > 1340", "COMMIT")
        statement(third, "ROLLBACK")
        statement(first, "DELETE FROM b WHERE id BETWEEN 30 AND 40", "COMMIT")
        statement(first, "BEGIN", WIDE.format("d", 5001, 5090), "ALTER TABLE d ADD COLUMN c int DEFAULT 7")
        statement(first, "INSERT INTO d SELECT g, 'after', 8 FROM generate_series(5101, 5190) g", "COMMIT")
        statement(first, "BEGIN", "TRUNCATE d", WIDE.format("b", 6001, 6090), "COMMIT", "ALTER TABLE d DROP COLUMN c")


def statement(session: Session, *statements: str) -> None:
    for each in statements:
        session.execute(each)


def prepared(database: Database) -> list[Lsn]:
    """Four prepared transactions, small and streamed, committed and rolled back after others; the LSNs between."""
    lsns: list[Lsn] = []
    with database.connect() as one, database.connect() as two:
        statement(one, "BEGIN", "INSERT INTO a VALUES (70001, 'p')", f"PREPARE TRANSACTION '{database.name}_1'")
        statement(one, "BEGIN", WIDE.format("b", 70001, 70090), "SAVEPOINT s", WIDE.format("a", 71001, 71060))
        statement(one, "ROLLBACK TO s", WIDE.format("a", 72001, 72060), f"PREPARE TRANSACTION '{database.name}_2'")
        statement(one, "BEGIN", "INSERT INTO a VALUES (70003, 'p')", f"PREPARE TRANSACTION '{database.name}_3'")
        statement(one, "BEGIN", WIDE.format("a", 73001, 73090), f"PREPARE TRANSACTION '{database.name}_4'")
        lsns.append(flushed(two))
        statement(two, "INSERT INTO a VALUES (80005, 'plain')", "INSERT INTO b VALUES (80005, 'plain')")
        statement(two, f"ROLLBACK PREPARED '{database.name}_3'", f"COMMIT PREPARED '{database.name}_2'")
        lsns.append(flushed(two))
        statement(two, f"COMMIT PREPARED '{database.name}_1'", "UPDATE a SET v = 'q' WHERE id = 70001")
        statement(two, f"ROLLBACK PREPARED '{database.name}_4'")
    return lsns


def flushed(session: Session) -> Lsn:
    [(lsn,)] = session.execute("SELECT pg_current_wal_insert_lsn()::text").fetchall()
    return Lsn.parse(str(lsn))


def sent(database: Database, pipeline: Pipeline, options: Options) -> set[str]:
    """The types of the messages that a copy of the slot gives with these options."""
    words = [word for option in options for word in option]
    with database.connect() as connection:
        connection.execute("SELECT pg_copy_logical_replication_slot(%s, 'look', true)", [pipeline.source.slot])
        found = connection.execute(
            "SELECT DISTINCT get_byte(data, 0)"
            " FROM pg_logical_slot_get_binary_changes('look', NULL, NULL, VARIADIC %s)",
            [words],
        ).fetchall()
    return {chr(int(str(row[0]))) for row in found}


def options_of(version: int) -> list[dict[str, object]]:
    streaming = ["off", "on", *(["parallel"] if version >= 16 else [])]
    return [
        {"streaming": each, "two_phase": both}
        for each in streaming
        for both in ([False, True] if version > 14 else [False])
    ]


# a peek reads the same functions of the server at the slot itself
@pytest.mark.parametrize("through", ["copy", at_night("peek")])
def test_every_option_lands_what_protocol_1_lands(every_database: Database, tmp_path: Path, through: str) -> None:
    peek_bytes = 0 if through == "copy" else 1 << 40
    version = every_database.server.version
    for number, options in enumerate(options_of(version)):
        folder = tmp_path / str(number)
        both = pair(every_database, folder, peek_bytes=peek_bytes, **options)
        with every_database.connect() as open_one:  # still open where the window ends
            statement(open_one, "BEGIN", WIDE.format("o", 1, 90))
            workload(every_database)
            cuts = prepared(every_database)
            kinds = sent(every_database, both.asked, plugin_options(both.asked.source, version * 10000))
            assert kinds >= set("SEcA" if options["streaming"] != "off" else "BC")
            assert kinds >= set("bPKr" + "p" * (options["streaming"] != "off") if options["two_phase"] else "BC")
            # a peek starts where the slot stands, so windows are landed one after the other
            both.capture(cuts)
            statement(open_one, WIDE.format("o", 101, 190), "COMMIT")
        both.capture()
        expected = logged(both.plain)
        assert len(expected) > 1000
        assert logged(both.asked) == expected
        for pipeline in (both.asked, both.plain):
            every_database.execute(f"SELECT pg_drop_replication_slot('{pipeline.source.slot}')")
        every_database.execute(f"DROP PUBLICATION {every_database.name}", f"DROP TABLE {', '.join(NAMES)}")


@pytest.mark.parametrize("two_phase", [False, True])
def test_a_slot_that_its_user_made_two_phase(database: Database, tmp_path: Path, two_phase: bool) -> None:
    """What was prepared before a window that is landed and passed comes with its COMMIT PREPARED all the same."""
    database.execute(
        *TABLES,
        f"CREATE PUBLICATION {database.name} FOR TABLE {', '.join(NAMES)}",
        f"SELECT pg_create_logical_replication_slot('{database.name}', 'pgoutput', false, true)",
    )
    pipeline = pipeline_of(database, tmp_path, *NAMES, two_phase=two_phase)
    prepare_slot(pipeline)
    with database.connect() as session:
        statement(session, "BEGIN", "INSERT INTO a VALUES (1, 'p')", f"PREPARE TRANSACTION '{database.name}'")
        statement(session, "INSERT INTO b VALUES (1, 'plain')")
        capture(pipeline)
        statement(session, "CHECKPOINT", "SELECT pg_log_standby_snapshot()", "INSERT INTO b VALUES (2, 'plain')")
        capture(pipeline)
        statement(session, "CHECKPOINT", "INSERT INTO b VALUES (3, 'plain')")
        capture(pipeline)
        assert [change.kind for change in logged(pipeline)] == ["I"] * 3
        statement(session, f"COMMIT PREPARED '{database.name}'")
    capture(pipeline)
    assert [change.kind for change in logged(pipeline)] == ["I"] * 4
