"""Capture against a live server: windows tile, nothing is lost between the steps, and bad input changes nothing."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from psycopg import sql

from spark_jobs.capture.capture import capture, capture_windows, land_window
from spark_jobs.capture.session import capture_session
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.change_log.schema import CHANGE_LOG_SCHEMA
from spark_jobs.configuration import Pipeline, WindowLimits
from spark_jobs.errors import CdcError, GapError, PreconditionError, SlotError
from spark_jobs.logicalrep.lsn import Lsn, Window
from spark_jobs.postgres.slot import advance_slot
from spark_jobs.prepare import prepare
from tests.capture.orders import TABLE, slots
from tests.fixtures.pipelines import MakePipeline, pipeline_of, prepare_slot
from tests.fixtures.servers import Database, fresh_database
from tests.log_rows import log_rows

pytestmark = pytest.mark.postgres


def workload(database: Database, rounds: int = 10, seed: int = 1) -> None:
    rng = random.Random(seed)  # noqa: S311
    with database.connect() as connection:
        for _ in range(rounds):
            with connection.transaction():
                first = rng.randrange(1_000_000)
                connection.execute(
                    "INSERT INTO orders SELECT g, g, 'note' FROM generate_series(%s::int, %s) g ON CONFLICT DO NOTHING",
                    [first, first + rng.randrange(20)],
                )
                connection.execute("UPDATE orders SET amount = amount + 1 WHERE id %% 3 = %s", [rng.randrange(3)])
                connection.execute("DELETE FROM orders WHERE id %% 7 = %s", [rng.randrange(7)])


def changes(pipeline: Pipeline, *, first: int = 0) -> list[tuple[object, ...]]:
    """What was landed in total order; Relation messages and ordinals repeat per window, so both are left out."""
    kept = [row for row in log_rows(pipeline) if row["kind"] in "IUDTM" and row["window"] >= first]
    kept.sort(key=lambda row: (row["commit_lsn"], row["ordinal"]))
    return [(r["commit_lsn"], r["xid"], r["commit_time"], r["kind"], r["relid"], r["version"], r["data"]) for r in kept]


def slot_position(database: Database) -> Lsn:
    [(lsn,)] = database.execute(
        f"SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = '{database.name}'"
    )
    return Lsn.parse(str(lsn))


def test_landed_windows_describe_themselves(every_database: Database, tmp_path: Path) -> None:
    every_database.execute(TABLE)
    pipeline = pipeline_of(every_database, tmp_path / "lake", "orders")
    first = prepare_slot(pipeline)
    assert (first.ordinal, first.window.size) == (0, 0)
    workload(every_database)
    every_database.execute("TRUNCATE orders")
    report = capture(pipeline)
    [marker] = report.landed
    assert report.caught_up
    assert marker.window == Window(first.window.hi, report.upto)
    assert slot_position(every_database) == marker.window.hi
    log = ChangeLog(pipeline.lake.change_log)
    assert log.markers() == (first, marker)
    assert log.checkpoint() == marker
    [counts] = marker.relations
    assert (counts.nspname, counts.relname, counts.changes.truncates) == ("public", "orders", 1)
    landed = changes(pipeline)
    assert marker.changes == len(landed) > 50
    assert sum(row[3] == "U" for row in landed) == counts.changes.updates
    assert marker.transactions == 11
    [facts] = log.facts(1, 1)
    assert facts.facts.primary_key == ("id",)
    assert {row[5] for row in landed if row[3] != "T"} == {facts.version}
    read = log.read([counts.relid], 1, 1)
    kinds = Counter(read.column("kind").to_pylist())
    assert sum(kinds[kind] for kind in "IUDT") == len(landed)
    assert (kinds["F"], kinds["R"] >= 1, sum(kinds.values()) - len(landed)) == (1, True, kinds["F"] + kinds["R"])
    assert read.schema.names == CHANGE_LOG_SCHEMA.names


def test_random_cuts_give_the_rows_of_one_window(database: Database, tmp_path: Path) -> None:
    database.execute(TABLE)
    whole = pipeline_of(database, tmp_path / "whole", "orders")
    database.execute(f"CREATE PUBLICATION {database.name} FOR TABLE orders")
    cut = pipeline_of(database, tmp_path / "cut", "orders", slot=f"{database.name}_cut")
    prepare_slot(whole)
    prepare_slot(cut)
    workload(database, rounds=15)
    report = capture(whole)
    lo, hi = ChangeLog(cut.lake.change_log).markers()[0].window.hi, report.upto
    rng = random.Random(7)  # noqa: S311
    bounds = [lo, *sorted(Lsn(rng.randrange(lo + 1, hi)) for _ in range(25)), hi]
    windows = [Window(a, b) for a, b in pairwise(bounds) if a < b]
    landed = capture_windows(cut, windows).landed
    assert [marker.window for marker in landed] == windows
    assert any(marker.messages == 0 for marker in landed), "an empty window lands its marker as well"
    assert changes(cut) == changes(whole)


def test_quiet_database_stays_quiet(database: Database, make_pipeline: MakePipeline) -> None:
    database.execute(TABLE)
    pipeline = make_pipeline("orders")
    prepare_slot(pipeline)
    workload(database, rounds=1)
    assert len(capture(pipeline).landed) == 1
    # the server itself writes a little now and then, but never because of a capture: one of these finds nothing
    again = [capture(pipeline) for _ in range(4)]
    assert all(report.caught_up for report in again)
    assert () in [report.landed for report in again]


def test_a_quiet_database_holds_no_wal_of_a_busy_neighbour(database: Database, make_pipeline: MakePipeline) -> None:
    """So it needs no heartbeat."""
    database.execute(TABLE)
    pipeline = make_pipeline("orders")
    prepare_slot(pipeline)
    restart = f"SELECT restart_lsn::text FROM pg_replication_slots WHERE slot_name = '{database.name}'"
    with fresh_database(database.server) as neighbour:
        neighbour.execute("CREATE TABLE busy AS SELECT g, md5(g::text) FROM generate_series(1, 20000) g", "CHECKPOINT")
        [(written,)] = neighbour.execute("SELECT pg_current_wal_flush_lsn()::text")
        neighbour.execute("INSERT INTO busy VALUES (0, 'later')", "CHECKPOINT")
    report = capture(pipeline)
    assert report.caught_up
    assert sum(marker.changes for marker in report.landed) == 0
    before = Lsn.parse(str(written)) - (1 << 20)
    assert Lsn.parse(str(database.execute(restart)[0][0])) > before, "the neighbour wrote a megabyte and more"


def test_killed_between_landing_and_advance(database: Database, make_pipeline: MakePipeline) -> None:
    database.execute(TABLE)
    pipeline = make_pipeline("orders")
    start = prepare_slot(pipeline).window.hi
    workload(database)
    with capture_session(pipeline) as session:
        [(flushed,)] = database.execute("SELECT pg_current_wal_flush_lsn()::text")
        window = Window(start, Lsn.parse(str(flushed)))
        marker = land_window(session, window)
    before = changes(pipeline)
    assert slot_position(database) == start
    report = capture(pipeline, upto=window.hi)
    assert report.landed == ()
    assert report.caught_up
    assert slot_position(database) == marker.window.hi
    assert changes(pipeline) == before


def test_landing_twice_changes_nothing(database: Database, make_pipeline: MakePipeline) -> None:
    database.execute(TABLE)
    pipeline = make_pipeline("orders")
    start = prepare_slot(pipeline).window.hi
    workload(database, rounds=2)
    report = capture(pipeline)
    log = ChangeLog(pipeline.lake.change_log)
    assert log.land(report.landed[0].identity, 1, iter(())) is False
    again = capture_windows(pipeline, [Window(start, report.upto)])
    assert (again.landed, again.caught_up) == ((), True)
    assert prepare_slot(pipeline) == report.landed[-1]
    assert len(log.markers()) == 2


def test_requested_window_is_cut_and_a_gap_raises(database: Database, make_pipeline: MakePipeline) -> None:
    database.execute(TABLE)
    pipeline = make_pipeline("orders")
    start = prepare_slot(pipeline).window.hi
    workload(database, rounds=2)
    first = capture(pipeline)
    workload(database, rounds=2, seed=2)
    [(flushed,)] = database.execute("SELECT pg_current_wal_flush_lsn()::text")
    end = Lsn.parse(str(flushed))
    with pytest.raises(GapError, match=str(first.landed_end)):
        capture_windows(pipeline, [Window(Lsn(first.landed_end + 8), end)])
    [marker] = capture_windows(pipeline, [Window(start, end)]).landed
    assert marker.window == Window(first.landed_end, end)


def test_slot_ahead_of_the_log_is_a_gap(database: Database, make_pipeline: MakePipeline) -> None:
    database.execute(TABLE)
    pipeline = make_pipeline("orders")
    start = prepare_slot(pipeline).window.hi
    workload(database, rounds=2)
    database.execute(f"SELECT pg_replication_slot_advance('{database.name}', pg_current_wal_flush_lsn())")
    ahead = slot_position(database)
    with pytest.raises(GapError, match=rf"slot stands at {ahead}, ahead of the change log, which ends at {start}"):
        capture(pipeline)
    assert changes(pipeline) == []


def test_windows_are_bounded_in_size_and_number(database: Database, make_pipeline: MakePipeline) -> None:
    database.execute(TABLE)
    pipeline = make_pipeline("orders")
    prepare_slot(pipeline)
    workload(database)
    small = Pipeline(
        pipeline.name, pipeline.source, pipeline.lake, windows=WindowLimits(4096, 3), tables=pipeline.tables
    )
    report = capture(small)
    assert [marker.window.size for marker in report.landed] == [4096] * 3
    assert not report.caught_up
    assert [m.ordinal for m in capture(small, max_windows=2).landed] == [4, 5]
    assert capture(pipeline).caught_up


def test_no_spare_slot_reads_the_slot_itself(
    database: Database, make_pipeline: MakePipeline, caplog: pytest.LogCaptureFixture
) -> None:
    database.execute(TABLE)
    pipeline = make_pipeline("orders")
    prepare_slot(pipeline)
    database.execute("INSERT INTO orders SELECT g, g, repeat('x', 200) FROM generate_series(1, 9000) g")
    [(free,)] = database.execute(
        "SELECT current_setting('max_replication_slots')::int - count(*) FROM pg_replication_slots"
    )
    taken = [f"{database.name}_{number}" for number in range(int(str(free)))]
    for name in taken:
        database.execute(f"SELECT pg_create_physical_replication_slot('{name}')")
    try:
        [marker] = capture(pipeline).landed
        assert marker.changes == 9000
        assert "reading the slot itself" in caplog.text
        other = make_pipeline("orders", slot=f"{database.name}_more")
        with pytest.raises(
            PreconditionError, match=r"replication slots are in use: drop a slot .*, or raise max_replication_slots"
        ):
            prepare_slot(
                Pipeline(other.name, other.source, type(other.lake)(f"{other.lake.path}2"), tables=other.tables)
            )
    finally:
        for name in taken:
            database.execute(f"SELECT pg_drop_replication_slot('{name}')")


def test_one_reader_at_a_time(database: Database, make_pipeline: MakePipeline) -> None:
    database.execute(TABLE)
    pipeline = make_pipeline("orders")
    prepare_slot(pipeline)
    with capture_session(pipeline), pytest.raises(SlotError, match="another process is capturing"):
        capture(pipeline)
    assert capture(pipeline).caught_up


def test_concurrent_writer_of_the_log_is_refused(database: Database, make_pipeline: MakePipeline) -> None:
    database.execute(TABLE)
    pipeline = make_pipeline("orders")
    prepare_slot(pipeline)
    workload(database, rounds=1)
    with capture_session(pipeline) as session:
        window = Window(session.checkpoint.window.hi, Lsn(session.checkpoint.window.hi + 512))
        marker = land_window(session, window)
        with pytest.raises(CdcError, match="landed already"):
            land_window(session, window)
        assert advance_slot(session.control, session.identity.slot, marker.window.hi) == window.hi
    assert len(ChangeLog(pipeline.lake.change_log).markers()) == 2


def test_every_message_of_the_protocol_is_kept(database: Database, make_pipeline: MakePipeline) -> None:
    database.execute(
        TABLE, "CREATE TYPE mood AS ENUM ('sad', 'ok')", "CREATE TABLE people (id int PRIMARY KEY, mood mood)"
    )
    pipeline = make_pipeline("orders", "people", messages=True)
    prepare_slot(pipeline)
    with database.connect() as connection:
        connection.execute("SELECT pg_logical_emit_message(false, 'loose', 'x')")
        with connection.transaction():
            connection.execute("SELECT pg_logical_emit_message(true, 'bound', 'y')")
            connection.execute("INSERT INTO people VALUES (1, 'sad')")
        connection.execute("SELECT pg_replication_origin_create(%s)", [database.name])
        connection.execute("SELECT pg_replication_origin_session_setup(%s)", [database.name])
        connection.execute("INSERT INTO orders VALUES (1, 2, 'three')")
        connection.execute("TRUNCATE orders, people")
        connection.execute("SELECT pg_replication_origin_session_reset()")
        connection.execute("SELECT pg_replication_origin_drop(%s)", [database.name])
        connection.execute("ALTER TABLE orders ADD COLUMN extra int")
        connection.execute("INSERT INTO orders VALUES (2, 2, 'three', 4)")
    capture(pipeline)
    rows = sorted(log_rows(pipeline), key=lambda row: (row["commit_lsn"], row["ordinal"]))
    rows = [row for row in rows if row["window"] == 1]
    loose, bound = (row for row in rows if row["kind"] == "M")
    assert (loose["xid"], loose["ordinal"], loose["commit_time"]) == (0, 0, None)
    assert loose["commit_lsn"] == int.from_bytes(loose["data"][2:10], "big")
    assert bound["xid"] > 0
    assert bound["ordinal"] == 0
    assert [row["kind"] for row in rows].count("Y") >= 1
    inserts = [row for row in rows if row["kind"] == "I"]
    assert [row["origin"] for row in inserts] == [None, database.name, None]
    assert inserts[1]["version"] != inserts[2]["version"]
    truncates = [row for row in rows if row["kind"] == "T"]
    assert len({row["relid"] for row in truncates}) == len(truncates) == 2
    assert len({row["ordinal"] for row in truncates}) == 1
    facts = ChangeLog(pipeline.lake.change_log).facts(1, 1, [inserts[1]["relid"]])
    assert [fact.version for fact in facts] == [inserts[1]["version"], inserts[2]["version"]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"plugin": "test_decoding"}, "of another output plugin"),
        ({"origin": "none"}, "of another plugin option origin: it has any, now it is none"),
        ({"publication": ("a", "b")}, "of another plugin option publication_names"),
        ({"slot": "other"}, "of another slot"),
    ],
)
def test_log_of_another_kind_is_refused(
    database: Database, make_pipeline: MakePipeline, change: dict[str, object], message: str
) -> None:
    database.execute(TABLE)
    prepare_slot(make_pipeline("orders"))
    other = make_pipeline("orders", **change)
    for step in (prepare_slot, capture):
        with pytest.raises(CdcError, match=message) as caught:
            step(other)
        assert "\n" not in str(caught.value)


def test_lost_slot_is_a_gap(database: Database, make_pipeline: MakePipeline) -> None:
    database.execute(TABLE)
    pipeline = make_pipeline("orders")
    prepare_slot(pipeline)
    database.execute(f"SELECT pg_drop_replication_slot('{database.name}')")
    for step in (capture, prepare_slot):
        with pytest.raises(GapError, match="is gone"):
            step(pipeline)


def bad_dsn(case: str, database: Database) -> str:
    return {
        "cannot connect": "host=127.0.0.1 port=1 dbname=x password=geheim",
        "password authentication failed": database.server.dsn(database.name, password="geheim"),
        'database "nowhere" does not exist': database.server.dsn("nowhere"),
        "not a PostgreSQL connection string": "geheim",
    }[case]


@pytest.mark.parametrize(
    "case",
    [
        "cannot connect",
        "password authentication failed",
        'database "nowhere" does not exist',
        "not a PostgreSQL connection string",
    ],
)
def test_bad_source_is_one_line_and_changes_nothing(database: Database, make_pipeline: MakePipeline, case: str) -> None:
    database.execute(TABLE)
    pipeline = make_pipeline("orders", dsn=bad_dsn(case, database))
    for step in (prepare_slot, capture):
        with pytest.raises(CdcError, match=case) as caught:
            step(pipeline)
        assert "\n" not in str(caught.value)
        assert "geheim" not in str(caught.value)
    assert slots(database) == 0
    assert not Path(pipeline.lake.path).exists()


def test_missing_table_and_empty_publication_change_nothing(database: Database, make_pipeline: MakePipeline) -> None:
    with pytest.raises(PreconditionError, match=r"no table public\.orders"):
        prepare_slot(make_pipeline("orders"))
    with pytest.raises(PreconditionError, match="names no tables"):
        prepare(make_pipeline())
    assert database.execute("SELECT 1 FROM pg_publication") == []
    assert slots(database) == 0
    database.execute(TABLE, f"CREATE PUBLICATION {database.name}")
    with pytest.raises(PreconditionError, match="has no table"):
        prepare(make_pipeline())
    with pytest.raises(PreconditionError, match=r"does not publish public\.orders"):
        prepare_slot(make_pipeline("orders"))
    assert slots(database) == 0


def test_lake_that_cannot_be_written_leaves_the_source_untouched(database: Database, tmp_path: Path) -> None:
    database.execute(TABLE)
    (tmp_path / "file").write_text("in the way")
    pipeline = pipeline_of(database, tmp_path / "file", "orders")
    with pytest.raises(CdcError, match=r"lake\.path") as caught:
        prepare_slot(pipeline)
    assert "\n" not in str(caught.value)
    assert slots(database) == 0
    assert database.execute("SELECT 1 FROM pg_publication") == []


def test_role_with_the_least_privileges(every_database: Database, tmp_path: Path) -> None:
    """REPLICATION, ownership of the tables and CREATE on the database: nothing more is needed."""
    role = f"cdc_{every_database.name}"
    with every_database.connect() as connection:
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'pw'").format(sql.Identifier(role)))
    try:
        every_database.execute(TABLE)
        dsn = every_database.server.dsn(every_database.name, user=role, password="pw")
        pipeline = pipeline_of(every_database, tmp_path / "lake", "orders", dsn=dsn)
        with pytest.raises(PreconditionError, match="has no REPLICATION"):
            prepare_slot(pipeline)
        every_database.execute(f"ALTER ROLE {role} REPLICATION")
        with pytest.raises(PreconditionError, match="permission denied for database"):
            prepare_slot(pipeline)
        every_database.execute(f"GRANT CREATE ON DATABASE {every_database.name} TO {role}")
        with pytest.raises(PreconditionError, match="must be owner of table orders"):
            prepare_slot(pipeline)
        assert slots(every_database) == 0
        every_database.execute(f"CREATE PUBLICATION {every_database.name} FOR TABLE orders")
        prepare_slot(pipeline)
        workload(every_database, rounds=2)
        [marker] = capture(pipeline).landed
        assert marker.changes > 0
    finally:
        every_database.execute(f"DROP OWNED BY {role}", f"DROP ROLE {role}")
