"""``mask:`` on live servers: no masked value is landed or spooled, whatever DDL happens between the rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pydantic import SecretStr

from spark_jobs.capture import transaction_spool
from spark_jobs.capture.capture import capture, land_window
from spark_jobs.capture.session import capture_session
from spark_jobs.capture.transaction_spool import TransactionSpool
from spark_jobs.capture.windows import plan_windows
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.configuration import Pipeline, Table, WindowLimits
from spark_jobs.errors import CdcError, ConfigurationError, DecodeError
from spark_jobs.logicalrep.messages import Change
from spark_jobs.logicalrep.pgoutput.read_message import read_change
from spark_jobs.options.table_mask import TableMask
from spark_jobs.postgres.flushed_wal import flushed_lsn
from spark_jobs.prepare import prepare
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.relation_version import relation_of
from tests.fixtures.pipelines import MakePipeline
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres

SALT = "saltcanary"
PERSON = QualifiedName("public", "person")
MADE = "CREATE TABLE person (id int PRIMARY KEY, email text, note text, age int)"
Masked = Callable[..., Pipeline]


@pytest.fixture
def masked(make_pipeline: MakePipeline) -> Masked:
    """``masked("email", streaming="on")``: of public.person these columns."""

    def make(*columns: str, **source: object) -> Pipeline:
        pipeline = make_pipeline("public.person", **source)
        return replace(pipeline, tables=(Table(PERSON, mask=columns),), mask_salt=SecretStr(SALT))

    return make


def hashed(value: str) -> bytes:
    return TableMask((), SALT.encode()).hashed(value.encode())


def in_folder(folder: Path) -> bytes:
    """All files' bytes, and what compression hides in them."""
    found = []
    for file in (file for file in folder.rglob("*") if file.is_file()):
        found.append(file.read_bytes())
        if file.suffix == ".parquet":
            found.append(str(pq.ParquetFile(file).read().to_pydict()).encode())
    return b"\n".join(found)


def changes_of(pipeline: Pipeline) -> list[Change]:
    """The landed changes of public.person, by the object decoder."""
    log = ChangeLog(pipeline.lake.change_log)
    relids = {counts.relid for marker in log.markers() for counts in marker.relations}
    rows = log.read(sorted(relids), 0, len(log.markers()))
    rows = rows.sort_by([(name, "ascending") for name in ("window", "commit_lsn", "ordinal")]).to_pylist()
    relations = {row["version"]: relation_of(row["data"]) for row in rows if row["kind"] == "R"}
    found = []
    for row in rows:
        if row["kind"] in "IUD":
            relation = relations[row["version"]]
            assert relation is not None
            found.append(read_change(row["data"], relation))
    return found


def assert_nowhere(pipeline: Pipeline) -> None:
    lake = in_folder(Path(pipeline.lake.path))
    assert b"public" in lake, "it has looked"
    assert b"canary" not in lake


def test_whole_streamed_and_prepared_transactions(
    database: Database, masked: Masked, monkeypatch: pytest.MonkeyPatch
) -> None:
    spooled: list[bytes] = []
    spill = TransactionSpool._spill

    def watched(spool: TransactionSpool, xid: int) -> None:
        spill(spool, xid)
        spooled.extend(str(batch.to_pydict()).encode() for batch in transaction_spool._spooled(spool._files[xid]))

    monkeypatch.setattr(TransactionSpool, "_spill", watched)
    monkeypatch.setattr(transaction_spool, "MEMORY_BYTES", 0)
    monkeypatch.setattr(TransactionSpool.__init__, "__defaults__", (0, transaction_spool.SPOOL_SCHEMA))
    database.execute(MADE, "ALTER TABLE person ALTER note SET STORAGE EXTERNAL")
    small = f"{database.dsn} options='-c logical_decoding_work_mem=64kB'"
    pipeline = masked("email", "note", dsn=small, streaming="on", two_phase=True)
    prepare(pipeline)
    database.execute(
        "INSERT INTO person VALUES (1, 'canary 1', repeat('canary', 2000), 5), (2, NULL, '', 6)",
        "UPDATE person SET age = 7",
        "UPDATE person SET id = 3, email = 'canary 3' WHERE id = 1",
        "INSERT INTO person SELECT g, 'canary ' || g, repeat('canary', 50), g FROM generate_series(100, 3000) g",
        "BEGIN; DELETE FROM person WHERE id > 2900; INSERT INTO person VALUES (-1, 'canary'); PREPARE TRANSACTION 'p'",
        "COMMIT PREPARED 'p'",
    )
    capture(pipeline)
    assert_nowhere(pipeline)
    assert spooled
    assert any(hashed("canary 100") in part for part in spooled)
    assert not any(b"canary" in part for part in spooled)
    first = changes_of(pipeline)[0]
    assert first.new == (b"1", hashed("canary 1"), hashed("canary" * 2000), b"5")  # type: ignore[union-attr]


def test_whole_old_rows_too(database: Database, masked: Masked) -> None:
    database.execute(MADE, "ALTER TABLE person REPLICA IDENTITY FULL")
    pipeline = masked("email", "id")
    prepare(pipeline)
    database.execute(
        "INSERT INTO person VALUES (77001, 'canary', 'x', 1)", "UPDATE person SET age = 2", "DELETE FROM person"
    )
    capture(pipeline)
    assert_nowhere(pipeline)
    assert b"77001" not in in_folder(Path(pipeline.lake.path))
    _, update, delete = changes_of(pipeline)
    whole = (hashed("77001"), hashed("canary"), b"x")
    assert update.old_tuple == (*whole, b"1")  # type: ignore[union-attr]
    assert delete.old_tuple == (*whole, b"2")  # type: ignore[union-attr]


def test_renamed_between_two_rows(database: Database, masked: Masked) -> None:
    database.execute(MADE)
    pipeline = masked("email")
    prepare(pipeline)
    database.execute(
        "INSERT INTO person VALUES (1, 'canary', 'x', 1)",
        "ALTER TABLE person RENAME email TO mail",
        "INSERT INTO person VALUES (2, 'canary', 'x', 1)",
    )
    for refused in (capture, prepare):
        with pytest.raises(ConfigurationError, match=r"public\.person has no column email: nothing is read: .*mail"):
            refused(pipeline)
    assert len(ChangeLog(pipeline.lake.change_log).markers()) == 1
    followed = masked("mail")
    prepare(followed)
    capture(followed)
    assert_nowhere(followed)
    assert [change.new[1] for change in changes_of(followed)] == [hashed("canary")] * 2  # type: ignore[union-attr]


def test_two_names_swapped(database: Database, masked: Masked) -> None:
    database.execute(MADE)
    pipeline = masked("email")
    prepare(pipeline)
    database.execute(
        "INSERT INTO person VALUES (1, 'canary', 'x', 1)",
        "ALTER TABLE person RENAME email TO tmp",
        "ALTER TABLE person RENAME note TO email",
        "ALTER TABLE person RENAME tmp TO note",
        "INSERT INTO person VALUES (2, 'canary', 'x', 1)",
    )
    with pytest.raises(ConfigurationError, match="the masked column email was renamed to note"):
        capture(pipeline)
    assert_nowhere(pipeline)
    both = masked("email", "note")
    capture(both)
    assert_nowhere(both)
    assert len(changes_of(both)) == 2


def test_ddl_in_a_backlog_of_windows(database: Database, masked: Masked) -> None:
    """The first of many windows is looked at when all has happened."""
    database.execute(MADE)
    pipeline = replace(masked("email"), windows=WindowLimits(max_bytes=4096, max_per_run=1000, peek_bytes=0))
    prepare(pipeline)
    statements = (
        "SELECT 1",
        "ALTER TABLE person DROP COLUMN note",
        "ALTER TABLE person ADD COLUMN phone text DEFAULT 'canary'",
        "ALTER TABLE person RENAME age TO years",
        "ALTER TABLE person ALTER email TYPE varchar(99)",
        "ALTER TABLE person DROP COLUMN email",
        "ALTER TABLE person ADD COLUMN email text DEFAULT 'canary'",
        "TRUNCATE person",
    )
    for number, statement in enumerate(statements):
        names, value = ("id", "") if "DROP COLUMN email" in statement else ("email, id", "'canary', ")
        rows = range(number * 100, number * 100 + 30)
        database.execute(statement, *(f"INSERT INTO person ({names}) VALUES ({value}{row})" for row in rows))
    wider = replace(pipeline, tables=(Table(PERSON, mask=("email", "phone")),))
    report = capture(wider)
    assert report.caught_up
    assert len(report.landed) > 3
    assert_nowhere(wider)
    assert len(changes_of(wider)) == 30 * len(statements)


def test_other_names_for_a_time(database: Database, masked: Masked) -> None:
    database.execute(MADE)
    pipeline = masked("email")
    prepare(pipeline)
    database.execute(
        "ALTER TABLE person RENAME email TO tmp",
        "INSERT INTO person VALUES (1, 'canary', 'x', 1)",
        "ALTER TABLE person RENAME tmp TO email",
        "ALTER TABLE person ADD copy text",
        "INSERT INTO person VALUES (2, 'canary', 'x', 1, 'canary')",
        "ALTER TABLE person DROP email",
        "INSERT INTO person VALUES (3, 'x', 1, 'canary')",
        "ALTER TABLE person RENAME copy TO email",
        "INSERT INTO person VALUES (4, 'x', 1, 'canary')",
    )
    capture(pipeline)
    assert_nowhere(pipeline)
    assert len(changes_of(pipeline)) == 4


def test_in_doubt_nothing_is_kept(database: Database, masked: Masked) -> None:
    database.execute(MADE)
    pipeline = masked("email")
    prepare(pipeline)
    swap = [f"ALTER TABLE person RENAME {names}" for names in ("email TO tmp", "note TO email", "tmp TO note")]
    database.execute(*swap, "INSERT INTO person VALUES (2, 'canary', 'x', 1)", *swap)
    with pytest.raises(DecodeError, match=r"window 1 .*public\.person is not read: .*`postgres-cdc recover`"):
        capture(pipeline)
    assert len(ChangeLog(pipeline.lake.change_log).markers()) == 1
    assert_nowhere(pipeline)


def test_the_table_was_renamed(database: Database, masked: Masked) -> None:
    database.execute(MADE)
    pipeline = masked("email")
    prepare(pipeline)
    database.execute("ALTER TABLE person RENAME TO people", "INSERT INTO people VALUES (2, 'canary', 'x', 1)")
    for refused in (capture, prepare):
        with pytest.raises(ConfigurationError, match=r"mask: there is no table public\.person in database"):
            refused(pipeline)
    assert_nowhere(pipeline)


def test_partitions_that_come_under_their_own_names(database: Database, masked: Masked) -> None:
    database.execute(
        "CREATE TABLE person (id int PRIMARY KEY, email text) PARTITION BY RANGE (id)",
        "CREATE TABLE person_low PARTITION OF person FOR VALUES FROM (0) TO (9)",
        f"CREATE PUBLICATION {database.name} FOR TABLE person",
    )
    pipeline = masked("email")
    for refused in (prepare, capture):
        with pytest.raises(CdcError):
            refused(pipeline)
    database.execute(f"ALTER PUBLICATION {database.name} SET (publish_via_partition_root = true)")
    prepare(pipeline)
    database.execute(
        "INSERT INTO person VALUES (1, 'canary')",
        "ALTER TABLE person ADD extra text",
        "ALTER TABLE person DROP email",
        "ALTER TABLE person ADD email text DEFAULT 'canary'",
        "INSERT INTO person (id, email) VALUES (3, 'canary')",
    )
    capture(pipeline)
    assert len(changes_of(pipeline)) == 2
    assert_nowhere(pipeline)
    database.execute(
        f"ALTER PUBLICATION {database.name} SET (publish_via_partition_root = false)",
        "INSERT INTO person VALUES (2, 'canary')",
    )
    with pytest.raises(
        DecodeError, match=r"public\.person_low is not read: it is sent under its own name, and public\.person above it"
    ):
        capture(pipeline)
    assert_nowhere(pipeline)


def test_a_window_that_was_landed_under_another_mask_is_recognised(database: Database, masked: Masked) -> None:
    """A crash between landing and moving the slot, and another configuration when it goes on."""
    database.execute(MADE)
    pipeline = masked("email")
    prepare(pipeline)
    for number, mask in enumerate((("email",), ("email", "note"), ())):
        database.execute(f"INSERT INTO person VALUES ({number}, 'canary', 'a note that is not short', 1)")
        of_now = masked(*mask)
        with capture_session(masked("email") if not number else of_now) as session:
            end = session.checkpoint.window.hi
            (window, *_) = plan_windows(end, session.slot.lsn, flushed_lsn(session.control), pipeline.windows)
            land_window(session, window)
    assert capture(pipeline).caught_up
