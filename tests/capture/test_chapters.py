"""A slot that no longer leads on from the log: seen before anything is written, and a new chapter begun. No Spark."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from cdc_assets.demo.embedded_postgres import running_postgres
from cdc_assets.slot_observation import markers_since, observe
from spark_jobs.capture.capture import capture
from spark_jobs.capture.chapter import begin_chapter
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.doctor.log_check import change_log_check
from spark_jobs.errors import RECOVER, BreakError, SlotInUseError
from spark_jobs.lake.generation import Generation
from spark_jobs.lake.table_state import TableState
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.postgres import flushed_wal
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.status import pipeline_status
from spark_jobs.tables.catalogue_changes import change_without_event, is_of_earlier_chapter
from tests.capture.orders import TABLE, slots
from tests.fixtures.pipelines import MakePipeline, pipeline_of, prepare_slot
from tests.fixtures.server_binaries import server_binaries
from tests.fixtures.server_folders import server_folder
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres

DROP = "SELECT pg_drop_replication_slot(current_database())"
INSERT = "INSERT INTO orders SELECT coalesce(max(id), 0) + 1, 1, 'x' FROM orders"
# what somebody does behind our back, and the words that tell of it
BREAKS = {
    "dropped": ((DROP,), "slot {slot} is gone, and the change log ends at {end}: the changes since then are lost"),
    "re-created": (
        (DROP, INSERT, "SELECT pg_create_logical_replication_slot(current_database(), 'pgoutput')"),
        "ahead of the change log, which ends at {end}: it was re-created, read or moved by someone else",
    ),
    "consumed": (
        (
            INSERT,
            (
                "SELECT pg_logical_slot_get_binary_changes(current_database(), NULL, NULL, 'proto_version', '1',"
                " 'publication_names', current_database())"
            ),
        ),
        "ahead of the change log, which ends at {end}: it was re-created, read or moved by someone else",
    ),
    "advanced": (
        (INSERT, "SELECT pg_replication_slot_advance(current_database(), pg_current_wal_flush_lsn())"),
        "ahead of the change log, which ends at {end}: it was re-created, read or moved by someone else",
    ),
}


def landed(pipeline: Pipeline) -> WindowMarker:
    checkpoint = ChangeLog(pipeline.lake.change_log).checkpoint()
    assert checkpoint is not None
    return checkpoint


def followed(database: Database, make_pipeline: MakePipeline) -> Pipeline:
    database.execute(TABLE)
    pipeline = make_pipeline("orders")
    prepare_slot(pipeline)
    database.execute(INSERT)
    assert capture(pipeline).caught_up
    return pipeline


@pytest.mark.parametrize("case", BREAKS)
def test_each_break_is_an_error_before_anything_is_written_and_a_chapter_repairs_it(
    database: Database, make_pipeline: MakePipeline, case: str
) -> None:
    pipeline = followed(database, make_pipeline)
    statements, words = BREAKS[case]
    last, words = landed(pipeline), words.format(slot=database.name, end=landed(pipeline).window.hi)
    database.execute(INSERT, *statements)
    for step in (prepare_slot, capture):
        with pytest.raises(BreakError) as caught:
            step(pipeline)
        assert words in str(caught.value)
        assert str(caught.value).endswith(RECOVER)
    assert [error.hint for error in pipeline_status(pipeline).errors] == [RECOVER]
    assert RECOVER in [check.remedy for check in change_log_check(pipeline)]
    assert landed(pipeline) == last

    names = [table.name for table in pipeline.tables or ()]
    first = begin_chapter(pipeline, names, after=last, what=caught.value.what)
    assert first is not None
    assert first == landed(pipeline) == prepare_slot(pipeline)
    assert (first.ordinal, first.identity.chapter) == (last.ordinal + 1, last.ordinal + 1)
    assert first.broke is not None
    assert (first.broke.before, first.broke.end, first.broke.what) == (last.identity, last.window.hi, caught.value.what)
    assert first.window.lo == first.window.hi > last.window.hi
    assert begin_chapter(pipeline, names, after=last, what="the same, by a second process") is None

    database.execute(INSERT)
    assert sum(marker.changes for marker in capture(pipeline).landed) == 1
    assert landed(pipeline).identity == first.identity
    assert landed(pipeline).broke is None


def test_a_chapter_begins_by_the_clock_of_the_source(
    database: Database, make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As commit times do, with which it is compared. Here the source's is years behind this machine's."""
    pipeline = followed(database, make_pipeline)
    database.execute(DROP)
    monkeypatch.setattr(flushed_wal, "_CLOCK", "SELECT timestamptz '2001-01-01 00:00:00.5+00'")
    names = [table.name for table in pipeline.tables or ()]
    first = begin_chapter(pipeline, names, after=landed(pipeline), what="gone")
    assert first is not None
    assert first.broke is not None
    assert first.broke.at == "2001-01-01T00:00:00+00:00"


def test_killed_before_the_marker_the_break_is_still_there(
    database: Database, make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = followed(database, make_pipeline)
    last, names = landed(pipeline), [table.name for table in pipeline.tables or ()]
    database.execute(DROP, INSERT)

    class KilledError(Exception):
        pass

    def killed(*_: object) -> None:
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr("spark_jobs.capture.chapter.land_first_marker", killed)
        with pytest.raises(KilledError):
            begin_chapter(pipeline, names, after=last, what="gone")
    assert slots(database) == 1
    with pytest.raises(BreakError, match="ahead of the change log"):
        prepare_slot(pipeline)
    first = begin_chapter(pipeline, names, after=last, what="gone")
    assert first is not None
    assert slots(database) == 1
    assert prepare_slot(pipeline) == first


def test_a_slot_that_another_session_reads_is_left_alone(database: Database, make_pipeline: MakePipeline) -> None:
    """A walsender has it: what begins here would be broken again at once."""
    pipeline = followed(database, make_pipeline)
    last, names = landed(pipeline), [table.name for table in pipeline.tables or ()]
    database.execute(INSERT, BREAKS["advanced"][0][1])
    reader = psycopg.pq.PGconn.connect(make_conninfo(database.dsn, replication="database").encode())
    options = f"proto_version '1', publication_names '{database.name}'"
    reader.exec_(f"START_REPLICATION SLOT {database.name} LOGICAL 0/0 ({options})".encode())
    try:
        with pytest.raises(SlotInUseError, match=r"is being read by server process \d+: stop that reader"):
            begin_chapter(pipeline, names, after=last, what="moved")
        assert landed(pipeline) == last
    finally:
        reader.finish()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"plugin": "test_decoding", "slot": "other"}, "of another slot: it has {name}, now it is other"),
        ({"origin": "none"}, "of another plugin option origin: it has any, now it is none"),
    ],
)
def test_a_configuration_that_was_changed_on_purpose(
    database: Database, make_pipeline: MakePipeline, change: dict[str, str], message: str
) -> None:
    pipeline = followed(database, make_pipeline)
    last, names = landed(pipeline), [table.name for table in pipeline.tables or ()]
    other = make_pipeline("orders", **change)
    with pytest.raises(BreakError, match=message.format(name=database.name)) as caught:
        prepare_slot(other)
    assert "point the configuration back; where that is meant: `postgres-cdc recover --config FILE`" in str(
        caught.value
    )
    try:
        first = begin_chapter(other, names, after=last, what=caught.value.what)
        assert first is not None
        assert first.identity.stream == last.identity.stream
        database.execute(INSERT)
        [marker] = capture(other).landed
        assert (marker.changes, marker.ordinal) == (1, last.ordinal + 2)
        assert marker.catalogue is not None
        assert marker.catalogue.changed == ()
        with pytest.raises(BreakError):  # and back again would be a chapter of its own
            capture(pipeline)
    finally:
        database.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = 'other'"
        )


def test_a_late_writer_of_an_earlier_chapter_lands_nothing(database: Database, make_pipeline: MakePipeline) -> None:
    """A process that read its window before the break, on a server that is no more: its locks are gone, its commit
    comes when the chapter is begun."""
    pipeline = followed(database, make_pipeline)
    last, names = landed(pipeline), [table.name for table in pipeline.tables or ()]
    database.execute(INSERT, DROP)
    elsewhere = replace(last.identity, system_identifier=1, timeline=7)
    log = ChangeLog(pipeline.lake.change_log)
    first = begin_chapter(pipeline, names, after=last, what="gone")
    assert first is not None
    assert not log.land(last.identity, last.ordinal + 1, [])
    assert not log.land(elsewhere.following(last.identity), last.ordinal + 1, [])


@contextmanager
def on_disk(folder: Path) -> Iterator[Database]:
    binaries = server_binaries(15)
    assert binaries is not None
    with running_postgres(folder, binaries=binaries, version=15) as server:
        yield Database(server, "postgres")


def test_a_disk_put_back_to_an_earlier_state(tmp_path: Path) -> None:
    """Slot, system identifier and timeline come back with it; and when it is looked at, the WAL has grown past the
    log."""
    lake = tmp_path / "lake"
    with server_folder("15") as scratch:
        disk, earlier = scratch / "disk", scratch / "earlier"
        with on_disk(disk) as database:
            database.execute(TABLE)
            prepare_slot(pipeline_of(database, lake, "orders"))
            database.execute(INSERT)
            capture(pipeline_of(database, lake, "orders"))
        subprocess.run(["cp", "-a", str(disk), str(earlier)], check=True)
        with on_disk(disk) as database:
            database.execute(INSERT, INSERT)
            capture(pipeline_of(database, lake, "orders"))
        with on_disk(earlier) as database:
            pipeline = pipeline_of(database, lake, "orders")
            database.execute("INSERT INTO orders SELECT g, 1, repeat('y', 100) FROM generate_series(10, 20000) g")
            last = landed(pipeline)
            with pytest.raises(BreakError, match="read again, holds other changes than the change log"):
                capture(pipeline)
            assert landed(pipeline) == last
            names = [table.name for table in pipeline.tables or ()]
            assert begin_chapter(pipeline, names, after=last, what="put back") is not None
            database.execute(INSERT)
            assert sum(marker.changes for marker in capture(pipeline).landed) == 1


def test_a_disk_put_back_is_told_by_any_window_that_the_slot_is_behind(tmp_path: Path) -> None:
    """The last one holds no transaction, neither then nor now."""
    lake, switch = tmp_path / "lake", ("SELECT pg_switch_wal()", "CHECKPOINT")
    with server_folder("15") as scratch:
        disk, earlier = scratch / "disk", scratch / "earlier"
        with on_disk(disk) as database:
            database.execute(TABLE)
            prepare_slot(pipeline_of(database, lake, "orders"))
        subprocess.run(["cp", "-a", str(disk), str(earlier)], check=True)
        with on_disk(disk) as database:
            database.execute(INSERT, INSERT)
            capture(pipeline_of(database, lake, "orders"))
            database.execute(*switch)
            assert capture(pipeline_of(database, lake, "orders")).landed[-1].transactions == 0
        with on_disk(earlier) as database:
            pipeline = pipeline_of(database, lake, "orders")
            last = landed(pipeline)
            database.execute(INSERT, *switch, *switch)
            with pytest.raises(BreakError, match=r"window 1 to 2 .*, read again, holds other changes than"):
                capture(pipeline)
            assert landed(pipeline) == last


def test_another_cluster_behind_the_address_and_back_again(tmp_path: Path) -> None:
    """LSNs go back. Said by each that looks, the sensor too; one server runs at a time."""
    lake = tmp_path / "lake"
    with server_folder("15") as scratch:
        with on_disk(scratch / "first") as database:
            pipeline = pipeline_of(database, lake, "orders")
            database.execute(TABLE)
            prepare_slot(pipeline)
            database.execute(INSERT, "SELECT pg_switch_wal()", INSERT, "SELECT pg_switch_wal()", INSERT)
            capture(pipeline)
            before = landed(pipeline)
        lsn = before.window.hi
        state = TableState(QualifiedName("public", "orders"), Generation(lsn, "word"), before.ordinal, 0, 1, 1)
        with on_disk(scratch / "second") as database:
            database.execute(TABLE)
            moved(pipeline_of(database, lake, "orders"), database)
            assert landed(pipeline).window.hi < lsn, "the clusters do not show what the test is about"
        with on_disk(scratch / "first") as database:
            moved(pipeline_of(database, lake, "orders"), database)
    # a table that grew from a snapshot of the first chapter is brought to no window behind it, whatever its LSN
    markers = ChangeLog(pipeline.lake.change_log).markers(state.ordinal)
    assert [marker.identity.chapter for marker in markers] == [2, 2, 4, 4]
    assert {marker.identity.stream for marker in markers} == {before.identity.stream}
    assert "needs a re-snapshot: another server" in str(change_without_event(markers, state))
    assert is_of_earlier_chapter(state, 4)
    assert {marker.identity.chapter for marker in markers_since(pipeline, Lsn(0))} == {4}


def moved(pipeline: Pipeline, database: Database) -> None:
    for look in (prepare_slot, capture, observe):
        with pytest.raises(BreakError, match=r"of another cluster \(system identifier\)"):
            look(pipeline)
    assert ["of another cluster" in str(error) for error in pipeline_status(pipeline).errors] == [True]
    names = [table.name for table in pipeline.tables or ()]
    assert begin_chapter(pipeline, names, after=landed(pipeline), what="another server") is not None
    database.execute(INSERT, INSERT)
    assert sum(marker.changes for marker in capture(pipeline).landed) == 2
    assert observe(pipeline) is not None
    assert pipeline_status(pipeline).errors == ()
