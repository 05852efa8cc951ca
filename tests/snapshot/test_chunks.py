"""Snapshots in chunks: the source is the oracle, whatever happens between two chunks."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from deltalake import DeltaTable

from spark_jobs.capture.capture import capture
from spark_jobs.configuration import Retention
from spark_jobs.errors import LakeInUseError, SnapshotWaitsError
from spark_jobs.forget.forget import forget
from spark_jobs.maintain.maintain import maintain
from spark_jobs.run import Run
from spark_jobs.snapshot.chunks import finish
from spark_jobs.snapshot.chunks.read_plan import ReadPlan
from spark_jobs.snapshot.chunks.read_record import ReadRecord, plans
from spark_jobs.snapshot.exporter import Exporter
from spark_jobs.snapshot.snapshot import snapshot
from spark_jobs.writers.with_arrow.rows_of_table import rows_of_table
from spark_jobs.writers.with_arrow.whole_table import WrittenFiles
from tests.at_night import at_night
from tests.fixtures.no_spark import no_spark, synced_without_spark
from tests.fixtures.servers import Database
from tests.fixtures.waiting import wait_until
from tests.snapshot.large_table import BIG, ONE_CHUNK, ROWS, LargeTable, changes, created
from tests.spark.crash_here import Crash, crash

pytestmark = pytest.mark.postgres


@pytest.fixture
def large(database: Database, tmp_path: Path) -> LargeTable:
    return LargeTable.at(created(database), tmp_path / "lake").prepared()


def test_a_large_table_is_read_in_chunks(large: LargeTable) -> None:
    large.read_on()
    assert len(large.chunks_read) == 1
    assert len(large.plan["chunks"]) > 5
    assert large.read_on(to_the_end=True).rows == ROWS
    large.assert_equal()
    large.database.execute("UPDATE big SET n = -n WHERE id % 7 = 0", "DELETE FROM big WHERE id % 11 = 0")
    synced_without_spark(large.pipeline)
    large.assert_equal()


@pytest.mark.parametrize("seed", [1, *(at_night(seed) for seed in range(2, 40))])
def test_changes_between_chunks(large: LargeTable, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311
    while large.read_on().error is not None:
        for _ in range(chance.randint(0, 6)):
            with large.database.connect() as connection, connection.transaction():
                for statement in changes(chance):
                    connection.execute(statement)
        if chance.random() < 0.3:
            large.database.execute("VACUUM big")
    large.assert_equal()
    synced_without_spark(large.pipeline)
    large.assert_equal()


class TestOneRow:
    """What one row may do while its table is read. The first rows are in the first chunk, the last ones in the last."""

    LAST = ROWS - 100  # with a value that an update of other columns leaves out

    @pytest.fixture
    def begun(self, large: LargeTable) -> LargeTable:
        large.database.execute(
            "DELETE FROM big WHERE id < 40", "VACUUM (INDEX_CLEANUP ON) big"
        )  # room for rows that move there
        large.read_on()
        large.read_on()
        return large

    def ends(self, begun: LargeTable, *statements: str) -> None:
        begun.database.execute(*statements)
        begun.read_on(to_the_end=True)
        begun.assert_equal()

    def where(self, begun: LargeTable, row: int) -> int:
        """The block that holds the row."""
        ((block,),) = begun.database.execute(f"SELECT (ctid::text::point)[0]::int FROM big WHERE id = {row}")
        assert isinstance(block, int)
        return block

    def test_moves_to_where_it_was_read(self, begun: LargeTable, monkeypatch: pytest.MonkeyPatch) -> None:
        """No chunk has it, and the change log lacks a value of it: it is read by its key."""
        asked: list[int] = []
        correct = ReadRecord.correct

        def counted(record: ReadRecord, *arguments: object) -> None:
            asked.append(1)
            correct(record, *arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(ReadRecord, "correct", counted)
        row = self.LAST
        before = self.where(begun, row)
        begun.database.execute(f"UPDATE big SET filler = repeat('m', 4500) WHERE id = {row}")
        assert self.where(begun, row) < before / 4
        self.ends(begun)
        assert asked == [1]

    def test_moves_on_and_is_read_twice(self, begun: LargeTable) -> None:
        begun.database.execute("UPDATE big SET filler = repeat('m', 7000) WHERE id = 42")
        self.ends(begun, "UPDATE big SET n = 3 WHERE id = 42")

    def test_gets_another_key(self, begun: LargeTable) -> None:
        row = self.LAST
        self.ends(begun, f"UPDATE big SET id = -1 WHERE id = {row}", "UPDATE big SET id = -2 WHERE id = 42")

    def test_gets_the_key_of_another(self, begun: LargeTable) -> None:
        """What was read under its key is another row, and it is read under this key, too."""
        self.ends(begun, "DELETE FROM big WHERE id = 42", f"UPDATE big SET id = 42 WHERE id = {self.LAST}")

    def test_leaves_its_key_to_another(self, begun: LargeTable) -> None:
        self.ends(
            begun,
            f"UPDATE big SET id = -1 WHERE id = {self.LAST}",
            f"INSERT INTO big VALUES ({self.LAST}, 0, 'new', repeat('another', 900))",
        )

    def test_is_there_for_a_time(self, begun: LargeTable, monkeypatch: pytest.MonkeyPatch) -> None:
        """Long enough to be read: the last chunk ends with it."""
        begun.database.execute("INSERT INTO big SELECT -g, 0, repeat('s', 7000), 'short' FROM generate_series(1, 9) g")
        after_last_chunk(begun, monkeypatch, "DELETE FROM big WHERE id < 0")
        self.ends(begun)

    def test_is_deleted_and_inserted(self, begun: LargeTable) -> None:
        row = self.LAST
        again = "WITH gone AS (DELETE FROM big WHERE id = {0} RETURNING *) INSERT INTO big SELECT * FROM gone"
        self.ends(begun, *(f"DELETE FROM big WHERE id = {each}" for each in (43, row)), again.format(44))


def after_last_chunk(large: LargeTable, monkeypatch: pytest.MonkeyPatch, *statements: str) -> None:
    """Execute ``statements`` when all chunks are read, before anything is captured."""
    add = ReadRecord.add

    def added(record: ReadRecord, plan: ReadPlan, number: int, files: WrittenFiles) -> None:
        add(record, plan, number, files)
        if len(large.chunks_read) == len(large.plan["chunks"]):
            large.database.execute(*statements)

    monkeypatch.setattr(ReadRecord, "add", added)


class TestOpenTransactions:
    CHANGES = (
        "UPDATE big SET n = -1 WHERE id IN (50, 3900)",
        "DELETE FROM big WHERE id IN (51, 3901)",
        "INSERT INTO big VALUES (-7, 0, 'late', 'late')",
    )

    @pytest.fixture
    def held(self, large: LargeTable) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
        with closing(psycopg.connect(large.database.dsn)) as connection:
            for statement in self.CHANGES:
                connection.execute(statement)
            yield connection

    def test_committed_while_it_is_read(self, large: LargeTable, held: psycopg.Connection[tuple[object, ...]]) -> None:
        large.read_on()
        held.commit()
        large.read_on(to_the_end=True)
        large.assert_equal()

    def test_written_before_the_table_was_published(self, large: LargeTable) -> None:
        """What it wrote is not sent, so no chunk is read before its end."""
        large.database.execute(f"ALTER PUBLICATION {large.database.name} DROP TABLE big")
        with closing(psycopg.connect(large.database.dsn)) as connection:
            for statement in self.CHANGES:
                connection.execute(statement)
            large.prepared()
            with Exporter(large.pipeline.source.dsn, ONE_CHUNK) as exporter:
                (waits,) = snapshot(Run(large.pipeline, large.spark), [BIG], exporter=exporter)
            assert isinstance(waits.error, SnapshotWaitsError)
            assert f"of server process {connection.info.backend_pid}" in str(waits.error)
            connection.commit()
        large.read_on(to_the_end=True)
        synced_without_spark(large.pipeline)
        large.assert_equal()

    def test_committed_afterwards(self, large: LargeTable, held: psycopg.Connection[tuple[object, ...]]) -> None:
        """The snapshot does not wait for it."""
        assert large.read_on(to_the_end=True).error is None
        large.assert_equal()
        held.commit()
        synced_without_spark(large.pipeline)
        large.assert_equal()

    def test_a_commit_that_is_decoded_before_others_see_it(self, large: LargeTable) -> None:
        """It waits for a synchronous standby: its window is landed before the first chunk, which does not show it."""
        database = large.database
        database.execute("CREATE TABLE elsewhere (id int)")
        database.execute(f"ALTER DATABASE {database.name} SET synchronous_commit = local")
        with closing(psycopg.connect(database.dsn)) as waiting, closing(psycopg.connect(database.dsn)) as probe:
            for connection in (waiting, probe):
                connection.execute("SET synchronous_commit = on")
            for statement in self.CHANGES:
                waiting.execute(statement)
            try:
                database.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'", "SELECT pg_reload_conf()")
                wait_until(
                    lambda: self.waits(database, probe, "INSERT INTO elsewhere VALUES (1); COMMIT"), "the reload"
                )
                assert self.waits(database, waiting, "COMMIT")
                assert any(marker.changes for marker in capture(large.pipeline).landed)
                while len(large.chunks_read) < 5:
                    large.read_on()
            finally:
                database.execute("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
            large.read_on(to_the_end=True)
        synced_without_spark(large.pipeline)
        large.assert_equal()

    def waits(self, database: Database, session: psycopg.Connection[tuple[object, ...]], statements: str) -> bool:
        """Whether these statements, which end with a commit, wait for a standby."""
        waits = f"SELECT 1 FROM pg_stat_activity WHERE pid = {session.info.backend_pid} AND wait_event = 'SyncRep'"
        session.pgconn.send_query(statements.encode())
        while True:  # each statement has a result, and the last one's may be late
            while session.pgconn.is_busy():
                if database.execute(waits):
                    return True
                session.pgconn.consume_input()
            if session.pgconn.get_result() is None:
                return False


def test_chunks_that_are_replaced_are_not_said_to_be_cut_off(
    large: LargeTable, caplog: pytest.LogCaptureFixture
) -> None:
    large.read_on()
    large.database.execute("UPDATE big SET n = 0 WHERE id < 10")
    assert large.read_on(to_the_end=True).error is None
    large.assert_equal()
    assert caplog.messages == []


def test_columns_that_are_altered_in_place_are_followed(large: LargeTable, caplog: pytest.LogCaptureFixture) -> None:
    """What was read before stays."""
    alter = "ALTER TABLE big "
    large.database.execute(alter + "ADD d numeric(8, 2) DEFAULT 1.5, ADD old text", "UPDATE big SET old = id, d = id")
    large.read_on()
    began = large.plan["began"]
    for statements in (
        (alter + "ADD e int DEFAULT 5, ADD at timestamptz DEFAULT now(), ADD bare text",),
        ("UPDATE big SET e = 6, bare = 'b' WHERE id % 50 = 0", alter + "RENAME e TO g", alter + "RENAME old TO e"),
        (alter + "DROP n", "UPDATE big SET g = 7 WHERE id % 40 = 1"),
        (alter + "ADD n text DEFAULT 'another'", "UPDATE big SET n = 'third' WHERE id % 30 = 2"),
        (alter + "ALTER d TYPE numeric(12, 2)", "UPDATE big SET d = 1234567890.12 WHERE id % 20 = 3"),
        (alter + "ALTER g SET DEFAULT 8, DROP bare", "INSERT INTO big (id, doc) VALUES (-1, 'new')"),
        ("UPDATE big SET id = -id WHERE id % 10 = 4", alter + "RENAME filler TO doc_2"),
    ):
        large.database.execute(*statements)
        capture(large.pipeline)
        read = large.chunks_read
        large.read_on()
        assert large.plan["began"] == began
        assert len(large.chunks_read) == len(read) + 1
    large.read_on(to_the_end=True)
    assert "from the start" not in caplog.text
    large.assert_equal()
    large.database.execute("UPDATE big SET g = -g WHERE id % 9 = 0")
    synced_without_spark(large.pipeline)
    large.assert_equal()


def test_partitions_that_are_created_are_followed(
    database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """All their rows are in the change log. So are those that move there."""
    database.execute(
        "CREATE TABLE big (id bigint PRIMARY KEY, n int, doc text) PARTITION BY RANGE (id)",
        "CREATE TABLE big_1 PARTITION OF big FOR VALUES FROM (0) TO (1000)",
        "CREATE TABLE big_2 PARTITION OF big FOR VALUES FROM (1000) TO (2000)",
        "INSERT INTO big SELECT g, g, repeat(md5(g::text), 30) FROM generate_series(1, 1999) g",
    )
    large = LargeTable.at(database, tmp_path / "lake").prepared()
    large.read_on()
    database.execute(
        "CREATE TABLE big_3 PARTITION OF big FOR VALUES FROM (2000) TO (3000)",
        "INSERT INTO big VALUES (2000, 0, 'new')",
        "UPDATE big SET id = id + 1500 WHERE id % 100 = 7 AND id BETWEEN 501 AND 999",
    )
    large.read_on()
    database.execute("ALTER TABLE big DROP n", "UPDATE big SET doc = 'short' WHERE id % 100 = 8")
    large.read_on(to_the_end=True)
    assert "from the start" not in caplog.text
    large.assert_equal()


@pytest.mark.parametrize("seed", [1, *(at_night(seed) for seed in range(2, 40))])
def test_ddl_and_changes_between_chunks(large: LargeTable, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """With transactions that are prepared in between, a TRUNCATE now and then, and processes that are killed."""
    chance = random.Random(seed)  # noqa: S311
    source = SourceUnderDdl(large, chance)
    write = ReadRecord._write

    def killed(record: ReadRecord, name: str, data: bytes) -> bool:
        if chance.random() < 0.05:
            raise Crash
        done = write(record, name, data)
        if chance.random() < 0.05:
            raise Crash
        return done

    taken = None
    while taken is None or taken.error is not None:
        in_one = source.truncated or large.attempt == 2  # too small for chunks, or altered too often
        waits = (SnapshotWaitsError,) if in_one and source.prepared else ()
        with monkeypatch.context() as patched, suppress(Crash, *waits):
            patched.setattr(ReadRecord, "_write", killed)
            taken = large.read_on()
        for _ in range(chance.randint(0, 4)):
            source.change()
            if chance.random() < 0.3:
                capture(large.pipeline)
    source.commit_prepared()
    synced_without_spark(large.pipeline)
    large.assert_equal()


@dataclass
class SourceUnderDdl:
    """Changes rows and columns of the table, in transactions of one session, which may be prepared."""

    large: LargeTable
    chance: random.Random
    prepared: list[str] = field(default_factory=list)
    truncated: bool = False
    made: int = 0

    def change(self) -> None:
        kind = self.chance.random()
        if self.prepared and kind < 0.3:
            self.commit_prepared()
        statements = list(changes(self.chance))
        if not self.prepared:  # which hold the table's lock
            statements[1:1] = self.altering() if kind < 0.5 else []
            if kind > 0.98 and not self.truncated:
                self.truncated = True
                statements.insert(0, "TRUNCATE big")
        with psycopg.connect(self.large.database.dsn, options="-c lock_timeout=200ms") as connection:
            try:
                for statement in statements:
                    connection.execute(statement)
            except psycopg.errors.LockNotAvailable:  # a row of a prepared transaction
                connection.rollback()
                return
            if not self.prepared and 0.8 < kind <= 0.98:
                self.prepared.append(f"{self.large.database.name}_{self.made}")
                self.made += 1
                connection.execute(f"PREPARE TRANSACTION '{self.prepared[-1]}'")
            connection.commit()

    def altering(self) -> list[str]:
        chance, alter = self.chance, "ALTER TABLE big "
        extra = [name for name in self.large.columns if name not in ("id", "n", "filler", "doc")]
        self.made += 1
        kinds = [
            f"{alter} ADD x{self.made} int DEFAULT {self.made}",
            f"{alter} ADD x{self.made} text",
            f"{alter} ADD x{self.made} timestamptz DEFAULT now(), ADD y{self.made} numeric(6, 2) DEFAULT 1.5",
        ]
        if extra:
            one, again = chance.choice(extra), "int" if chance.random() < 0.5 else "text DEFAULT 'again'"
            kinds += [
                f"{alter} DROP {one}",
                f"{alter} DROP {one}; {alter} ADD {one} {again}",
                f"{alter} RENAME {one} TO z{self.made}",
                f"{alter} RENAME {one} TO z; {alter} RENAME z TO {one}",
                f"{alter} ALTER {one} SET DEFAULT NULL",
                f"UPDATE big SET {one} = NULL WHERE id % 9 = {chance.randint(0, 8)}",
                f"{alter} ADD x{self.made} int DEFAULT 1; UPDATE big SET x{self.made} = id WHERE id % 50 = 3",
            ]
        return [chance.choice(kinds)]

    def commit_prepared(self) -> None:
        for gid in self.prepared:
            self.large.database.execute(f"COMMIT PREPARED '{gid}'")
        self.prepared.clear()


@pytest.mark.parametrize(
    "statements",
    [
        ("ALTER TABLE big ADD e text DEFAULT gen_random_uuid()",),
        ("ALTER TABLE big ALTER n TYPE bigint",),
        ("TRUNCATE big", "INSERT INTO big SELECT g, 0, repeat('t', 300), NULL FROM generate_series(1, 5000) g"),
        ("VACUUM FULL big",),
        (
            "CREATE TABLE other (LIKE big INCLUDING ALL)",
            "INSERT INTO other SELECT * FROM big WHERE id > 9",
            "ALTER TABLE big RENAME TO earlier",
            "ALTER TABLE other RENAME TO big",
        ),
    ],
    ids=["add a value for each row", "retype", "truncate", "vacuum full", "another table"],
)
def test_a_table_that_is_altered_is_read_from_the_start(large: LargeTable, statements: tuple[str, ...]) -> None:
    large.read_on()
    before = large.plan["began"]
    large.database.execute(*statements)
    if large.read_on().error is not None:
        assert large.plan["began"] != before
        large.read_on(to_the_end=True)
    synced_without_spark(large.pipeline)
    large.assert_equal()


def test_a_table_that_is_altered_too_often_is_read_in_one_snapshot(
    large: LargeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = ReadRecord.add

    def altered(*arguments: Any) -> None:
        add(*arguments)
        large.database.execute("VACUUM FULL big")

    with monkeypatch.context() as patched:
        patched.setattr(ReadRecord, "add", altered)
        assert "cannot be read in chunks" in str(large.read_on(to_the_end=True).error)
    with monkeypatch.context() as patched:
        patched.setattr(ReadRecord, "add", crash)
        assert large.read_on(to_the_end=True).rows == ROWS
    large.assert_equal()


ONLY = "INSERT INTO big VALUES (0, 1, 'only', 'one')"


@pytest.mark.parametrize(
    "statements",
    [("TRUNCATE big", ONLY), ("TRUNCATE big",), ("ALTER TABLE big ADD more int",)],
    ids=["a row since", "emptied", "a column alone"],
)
def test_altered_when_all_is_read(
    large: LargeTable, monkeypatch: pytest.MonkeyPatch, statements: tuple[str, ...]
) -> None:
    """Also by changes that leave no row."""
    large.read_on()
    with monkeypatch.context() as patched:
        after_last_chunk(large, patched, *statements)
        large.read_on(to_the_end=True)
    large.read_on(to_the_end=True)
    large.assert_equal()


def test_a_new_snapshot_beside_the_old_one(large: LargeTable) -> None:
    large.read_on(to_the_end=True)
    first = large.lake_rows()
    version = DeltaTable(large.pipeline.lake.table(BIG)).version()
    large.database.execute("UPDATE big SET n = n + 1 WHERE id % 2 = 0")
    large.read_on()
    assert large.lake_rows() == first
    large.database.execute("UPDATE big SET n = n + 1 WHERE id % 5 = 0")
    large.read_on(to_the_end=True)
    assert DeltaTable(large.pipeline.lake.table(BIG)).version() == version + 1
    large.assert_equal()


@pytest.mark.parametrize("name", ["plain", "with, (x)"])
def test_a_new_snapshot_with_other_columns(large: LargeTable, name: str) -> None:
    """The table gets them in the commit of the snapshot. One of the names needs Delta's column mapping."""
    large.database.execute(f'ALTER TABLE big ADD COLUMN "{name}" int DEFAULT 7')
    large.read_on(to_the_end=True)
    path = large.pipeline.lake.table(BIG)
    version = DeltaTable(path).version()
    large.database.execute(
        "ALTER TABLE big ALTER n TYPE text USING 'n' || n, DROP COLUMN filler, ADD of_each int DEFAULT random() * 9",
        f'ALTER TABLE big RENAME "{name}" TO "{name}_"',
    )
    capture(large.pipeline)
    large.read_on()
    assert DeltaTable(path).version() == version, "the old rows, until the last chunk is in"
    large.database.execute("UPDATE big SET of_each = -1 WHERE id % 5 = 0", "UPDATE big SET id = -id WHERE id % 9 = 0")
    large.read_on(to_the_end=True)
    large.assert_equal()
    large.database.execute("UPDATE big SET n = 'later' WHERE id % 7 = 0")
    synced_without_spark(large.pipeline)
    large.assert_equal()


def killed_after_the_commit(large: LargeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    large.read_on()
    with monkeypatch.context() as patched:
        patched.setattr(ReadRecord, "remove", crash)
        with pytest.raises(Crash):
            large.read_on(to_the_end=True)


def test_killed_between_the_commit_and_the_end_of_its_record(
    large: LargeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_after_the_commit(large, monkeypatch)
    assert large.folder.exists()
    large.database.execute("DELETE FROM big WHERE id % 3 = 1")
    synced_without_spark(large.pipeline)
    assert large.lake_rows() == large.rows()
    assert maintain(large.pipeline, no_spark).errors == ()
    assert not large.folder.exists()
    large.read_on(to_the_end=True)
    large.assert_equal()


def test_a_record_of_a_snapshot_that_was_taken_is_not_used_again(
    large: LargeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_after_the_commit(large, monkeypatch)
    large.database.execute("UPDATE big SET n = -n")
    large.read_on(to_the_end=True)
    large.assert_equal()


def test_rows_are_forgotten_beside_what_is_left_of_a_snapshot(
    large: LargeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That holds rows, too, and no sync reads it on."""
    killed_after_the_commit(large, monkeypatch)
    large.database.execute("DELETE FROM big WHERE id = 5")
    assert forget(large.pipeline, no_spark, BIG, ["id=5"]).tables[0].files
    large.assert_equal()


def test_of_two_processes_that_end_it_one_commits(large: LargeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    large.read_on()

    def quicker(*arguments: Any) -> Any:
        found = corrected(*arguments)
        with monkeypatch.context() as patched:
            patched.setattr(finish, "_corrected", corrected)
            large.read_on(to_the_end=True)
        return found

    corrected = finish._corrected
    with monkeypatch.context() as patched:
        patched.setattr(finish, "_corrected", quicker)
        with Exporter(large.pipeline.source.dsn) as exporter:
            (taken,) = snapshot(Run(large.pipeline, no_spark), [BIG], exporter=exporter)
    assert isinstance(taken.error, LakeInUseError)
    large.assert_equal()


def test_files_that_somebody_removed_are_read_again(large: LargeTable) -> None:
    large.read_on()
    large.read_on()
    read = large.chunks_read
    (gone, *_) = sorted(Path(large.pipeline.lake.table(BIG)).glob("*.parquet"))
    gone.unlink()
    large.read_on()
    assert read & large.chunks_read
    large.read_on(to_the_end=True)
    large.assert_equal()


@pytest.mark.parametrize(
    "name", ["plan-000.json#1", "chunk-000001-000.json#1", "corrected-00000000000000000001.json#2"]
)
def test_killed_while_it_wrote_its_record(large: LargeTable, name: str) -> None:
    large.prepared().read_on()
    before = len(large.chunks_read)
    Path(large.pipeline.lake.staging(BIG), "chunks", name).write_bytes(b'{"pa')
    large.read_on()
    assert len(large.chunks_read) == before + 1
    large.read_on(to_the_end=True)
    large.assert_equal()


def test_a_mode_that_is_changed_between_chunks(large: LargeTable) -> None:
    """What was read for Spark to write is written without it; ``test_snapshots_in_chunks.py`` has the other way."""
    tables = large.pipeline.tables
    large.pipeline = replace(large.pipeline, tables=(replace(tables[0], mode="history"),) if tables else None)
    large.read_on()
    large.pipeline = replace(large.pipeline, tables=tables)
    large.database.execute("UPDATE big SET n = -n WHERE id % 7 = 0")
    large.read_on()
    assert len(large.chunks_read) == 2
    large.read_on(to_the_end=True)
    large.assert_equal()


@pytest.mark.parametrize("key", ["text[] USING ARRAY[id::text, NULL]", "pair USING ROW(id, 'x, y')::pair"])
def test_rows_that_moved_are_read_by_a_key_that_holds_several_values(
    database: Database, tmp_path: Path, key: str
) -> None:
    """An update leaves out what is stored out of line."""
    created(database).execute("CREATE TYPE pair AS (a bigint, b text)", f"ALTER TABLE big ALTER id TYPE {key}")
    large = LargeTable.at(database, tmp_path / "lake").prepared()
    large.read_on()
    moved = "array_append(id, 'm')" if key.startswith("text[]") else "ROW((id).a, 'moved')::pair"
    database.execute(f"UPDATE big SET id = {moved} WHERE n % 100 = 3")
    large.read_on(to_the_end=True)
    texts = [(key, *rest) for key, *rest in database.execute("SELECT id::text, n, filler, doc FROM big ORDER BY n")]
    held = rows_of_table(DeltaTable(large.pipeline.lake.table(BIG))).sort_by("n")
    assert list(zip(*(column.to_pylist() for column in held.columns), strict=True)) == texts


def test_windows_of_a_snapshot_that_goes_on_are_kept(large: LargeTable) -> None:
    large.read_on()
    large.database.execute("UPDATE big SET n = -1 WHERE id < 30")
    capture(large.pipeline)
    (plan,) = plans(large.pipeline.lake)
    assert plan.name == BIG
    at_once = replace(large.pipeline, retention=Retention(change_log=timedelta(0), cuts=timedelta(days=1)))
    for _ in range(3):
        large.database.execute("UPDATE big SET n = -2 WHERE id = 1")
        capture(large.pipeline)
    report = maintain(at_once, no_spark)
    assert report.first_window <= plan.first_window
    assert "public.big" in report.held_by
    large.read_on(to_the_end=True)
    large.assert_equal()
