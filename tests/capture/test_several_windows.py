"""Several windows read with one call of the server are those of a call each, whatever happens between two of them."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from spark_jobs.capture.capture import capture, capture_windows
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.configuration import Pipeline, Table, WindowLimits
from spark_jobs.logicalrep.lsn import Lsn, Window
from spark_jobs.postgres.flushed_wal import flushed_lsn, wait_until_flushed
from spark_jobs.progress import Step
from spark_jobs.qualified_name import QualifiedName
from tests.at_night import at_night
from tests.capture.leaves import MADE, REASON
from tests.fixtures.pipelines import pipeline_of, prepare_slot
from tests.fixtures.servers import Database
from tests.log_rows import log_rows

pytestmark = pytest.mark.postgres

_TABLES = (
    "CREATE TYPE mood AS ENUM ('calm', 'cross')",
    "CREATE TABLE a (id bigint PRIMARY KEY, v text, feels mood DEFAULT 'calm')",
    "CREATE TABLE slow (id bigint PRIMARY KEY, v text)",
    "CREATE TABLE keyless (n int, v text)",
    "ALTER TABLE keyless REPLICA IDENTITY FULL",
    "CREATE TABLE prepared (id bigint PRIMARY KEY, v text)",
    "CREATE TABLE altered (id bigint PRIMARY KEY, v text)",
)
_ROUNDS = 9
_WINDOW = 48 << 10


@pytest.fixture
def read_log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.DEBUG, logger="spark_jobs.capture.capture"):
        yield caplog


@pytest.fixture
def followed(database: Database) -> tuple[Table, ...]:
    names = ("a", "slow", "keyless", "prepared", "altered")
    database.execute(*_TABLES, f"CREATE PUBLICATION {database.name} FOR TABLE {', '.join(names)}")
    return tuple(Table(QualifiedName("public", name), mask=("v",) if name == "a" else ()) for name in names)


def backlog(database: Database) -> None:
    """Large, prepared and partly rolled back transactions across many windows; one that holds ``restart_lsn`` back for
    most of them; DDL, TRUNCATE and messages in between."""
    with database.connect() as old, database.connect() as large:
        old.execute("BEGIN")
        old.execute("INSERT INTO slow SELECT g, repeat('x', 300) FROM generate_series(1, 200) g")
        for at in range(_ROUNDS):
            first = 1000 * (at + 1)
            large.execute("BEGIN")
            large.execute(f"UPDATE a SET v = 'u{at}' WHERE id % 5 = 1")
            large.execute("SAVEPOINT s")
            if at == 6:
                large.execute("SELECT pg_logical_emit_message(true, 'p', 'rolled back')")
            large.execute(f"INSERT INTO keyless SELECT g, repeat('k', 90) FROM generate_series(1, {at % 4 * 300}) g")
            large.execute("ROLLBACK TO s" if at % 3 == 0 else "RELEASE s")
            database.execute(
                f"INSERT INTO a SELECT g, repeat('y', 100) FROM generate_series({first}, {first + 40}) g",
                f"SELECT pg_logical_emit_message(false, 'p', 'loose {at}')",
                f"SELECT pg_logical_emit_message(true, 'p', 'bound {at}')",
                f"INSERT INTO altered SELECT {first} + g, 'n' FROM generate_series(1, 9) g",
                f"BEGIN; INSERT INTO prepared SELECT {first} + g, repeat('p', 99) FROM generate_series(1, 99) g;"
                f" PREPARE TRANSACTION '{database.name}_{at}'",
            )
            if at % 4 == 1:
                database.execute(f"ALTER TABLE altered ADD COLUMN c{at} int DEFAULT {at}")
            if at % 4 == 2:
                database.execute(f"ALTER TABLE altered DROP COLUMN c{at - 1}", "VACUUM ANALYZE keyless")
            if at == 5:
                database.execute("DO $$ BEGIN TRUNCATE altered; EXCEPTION WHEN division_by_zero THEN END $$")
            if at >= 2:
                end = "ROLLBACK" if at % 5 == 0 else "COMMIT"
                database.execute(f"{end} PREPARED '{database.name}_{at - 2}'")
            large.execute("COMMIT")
            if at == 7:
                old.execute("COMMIT")
        database.execute("DELETE FROM a WHERE id % 3 = 0", f"COMMIT PREPARED '{database.name}_{_ROUNDS - 2}'")


def content(pipeline: Pipeline) -> list[dict[str, Any]]:
    """All rows of the log, in its order, but for what no two reads have in common: the time of the looks."""
    rows = log_rows(pipeline)
    for row in rows:
        if row["kind"] == "W":
            marker = json.loads(row["data"])
            del marker["identity"]["slot"], marker["catalogue"]["horizon"]
            for moved in marker["catalogue"]["moved"]:
                del moved["until"]
            row["data"] = marker
    first = min(row["window"] for row in rows if row["kind"] == "I")
    return sorted((row for row in rows if row["window"] >= first), key=_place)


def _place(row: dict[str, Any]) -> tuple[object, ...]:
    return row["window"], row["commit_lsn"], row["ordinal"], row["kind"], row["relid"] or 0, str(row["data"])


def pipelines(
    database: Database, folder: Path, *kinds: str, tables: tuple[Table, ...], **source: Any
) -> list[Pipeline]:
    """Of one database, with a slot each at the same LSN."""
    settings = {"logical_decoding_work_mem": "64kB", "lock_timeout": "5s"}
    database.execute(*(f"ALTER DATABASE {database.name} SET {name} = '{value}'" for name, value in settings.items()))
    limits = WindowLimits(max_bytes=_WINDOW, max_per_run=1000, peek_bytes=0)
    made = []
    for kind in kinds:
        pipeline = pipeline_of(database, folder / kind, slot=f"{database.name}_{kind}", **source)
        made.append(replace(pipeline, windows=limits, tables=tables, mask_salt=SecretStr("salt")))
        prepare_slot(made[-1])
    database.execute("SELECT pg_logical_emit_message(true, 'p', 'so that each has a window up to here')")
    start = written(database)
    for pipeline in made:
        begin = ChangeLog(pipeline.lake.change_log).markers()[-1].window.hi
        assert len(capture_windows(pipeline, [Window(begin, start)]).landed) == 1
    return made


def written(database: Database) -> Lsn:
    with database.connect() as connection:
        return wait_until_flushed(connection, flushed_lsn(connection))


def one_by_one(pipeline: Pipeline, end: Lsn) -> None:
    while not capture(pipeline, upto=end, max_windows=1).caught_up:
        pass


class Killed(BaseException):
    pass


def killed_after_each_window(pipeline: Pipeline, end: Lsn) -> int:
    """How often."""

    def kill(step: Step) -> None:
        if step.done and " 0 messages" not in step.detail:
            raise Killed

    for kills in range(1000):
        try:
            capture(pipeline, upto=end, progress=kill)
        except Killed:
            continue
        return kills
    raise AssertionError("it does not get on")


_ACROSS_WINDOWS = {"streaming": "on", "two_phase": True}


@pytest.mark.parametrize("source", [{"messages": True}, at_night(_ACROSS_WINDOWS)], ids=str)
def test_they_are_those_of_a_call_each(
    database: Database,
    followed: tuple[Table, ...],
    tmp_path: Path,
    source: dict[str, Any],
    read_log: pytest.LogCaptureFixture,
) -> None:
    one, several = pipelines(database, tmp_path, "one", "several", tables=followed, **source)
    backlog(database)
    end = written(database)
    one_by_one(one, end)
    assert "with one call" not in read_log.text
    assert capture(several, upto=end).caught_up
    assert read_log.text.count("with one call") > 1
    assert "one by one" not in read_log.text
    expected = content(one)
    assert {row["kind"] for row in expected} >= set("IUDTRFW")
    assert content(several) == expected


def test_killed_after_each_window(
    database: Database, followed: tuple[Table, ...], tmp_path: Path, read_log: pytest.LogCaptureFixture
) -> None:
    one, killed = pipelines(database, tmp_path, "one", "killed", tables=followed, **_ACROSS_WINDOWS)
    backlog(database)
    end = written(database)
    one_by_one(one, end)
    assert killed_after_each_window(killed, end) > 5
    assert read_log.text.count("with one call") > 5
    assert content(killed) == content(one)


def test_a_partition_whose_identity_was_another_for_a_time(
    database: Database, tmp_path: Path, read_log: pytest.LogCaptureFixture
) -> None:
    """The server announces it with its first change of a call, and every window with such a change has to know."""
    database.execute(*MADE)
    database.execute(
        f"CREATE PUBLICATION {database.name} FOR TABLE root WITH (publish_via_partition_root)",
        "CREATE UNIQUE INDEX x ON leaf (v)",
    )
    root = (Table(QualifiedName("public", "root")),)
    one, several = pipelines(database, tmp_path, "one", "several", tables=root)
    with database.connect() as old:
        old.execute("BEGIN; SELECT pg_current_xact_id()")
        database.execute("ALTER TABLE leaf REPLICA IDENTITY USING INDEX x")
        for at in range(4):
            database.execute(f"UPDATE root SET id = id + 100, v = repeat('{at}', 9) || id WHERE id % 100 = {at + 1}")
            database.execute(f"SELECT pg_logical_emit_message(true, 'p', repeat('x', {_WINDOW}))")
        database.execute("ALTER TABLE leaf REPLICA IDENTITY DEFAULT", "DROP INDEX x")
    end = written(database)
    one_by_one(one, end)
    capture(several, upto=end)
    assert "with one call" in read_log.text
    found = [reasons(pipeline) for pipeline in (one, several)]
    assert len(found[0]) == 4
    assert found[1] == found[0]


def test_a_table_that_pauses_was_no_partition(
    database: Database, tmp_path: Path, read_log: pytest.LogCaptureFixture
) -> None:
    """All tables have the same columns, two have a partition, and most windows have changes of one table only."""
    names = "one", "other", "parted", "parted_too"
    database.execute(
        *(f"CREATE TABLE {name} (id int PRIMARY KEY, v text)" for name in names[:2]),
        *(f"CREATE TABLE {name} (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)" for name in names[2:]),
        *(f"CREATE TABLE {name}_leaf PARTITION OF {name} DEFAULT" for name in names[2:]),
        f"CREATE PUBLICATION {database.name} FOR TABLE {', '.join(names)} WITH (publish_via_partition_root)",
    )
    tables = tuple(Table(QualifiedName("public", name)) for name in names)
    (pipeline,) = pipelines(database, tmp_path, "several", tables=tables)
    with database.connect() as old:
        old.execute("BEGIN; SELECT pg_current_xact_id()")
        for at in range(8):
            database.execute(f"INSERT INTO {names[at % 4]} VALUES ({at}, 'v')")
            database.execute(f"SELECT pg_logical_emit_message(true, 'p', repeat('x', {_WINDOW}))")
    capture(pipeline, upto=written(database))
    assert "with one call" in read_log.text
    markers = ChangeLog(pipeline.lake.change_log).markers()
    assert sum(marker.changes for marker in markers) == 8
    looks = [marker.catalogue for marker in markers if marker.catalogue]
    assert [changed.reasons for look in looks for changed in look.changed if changed.reasons] == []


def reasons(pipeline: Pipeline) -> list[Lsn]:
    """The ends of the windows that say so."""
    return [
        marker.window.hi
        for marker in ChangeLog(pipeline.lake.change_log).markers()
        if marker.catalogue and any(REASON[0] in changed.reasons for changed in marker.catalogue.changed)
    ]
