"""``partial: true``: the chunks that are read so far can be read as a table of their own, which is never taken for the
table. The source is the oracle."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from spark_jobs.capture.capture import capture
from spark_jobs.configuration import Lake, Retention, Table
from spark_jobs.delta.files import files_below
from spark_jobs.drop.drop import drop
from spark_jobs.maintain.maintain import maintain
from spark_jobs.object_stores import storage_options
from spark_jobs.snapshot.chunks import partial_table
from spark_jobs.snapshot.chunks.partial_table import PartialTable
from spark_jobs.status import pipeline_status
from spark_jobs.storage import Storage, StoreSettings
from spark_jobs.verify.verify import verify
from spark_jobs.writers.with_arrow.rows_of_table import rows_of_table
from tests.fixtures.no_spark import no_spark, synced_without_spark
from tests.fixtures.s3_server import S3Server
from tests.fixtures.servers import Database
from tests.snapshot.large_table import BIG, ROWS, LargeTable, changes, created
from tests.spark.crash_here import Crash, crash

pytestmark = pytest.mark.postgres

COMMIT_COLUMNS = Table(BIG, metadata_columns=("_commit_lsn",))


def shown(large: LargeTable) -> Path:
    """Where status says that the partial table is."""
    (table,) = pipeline_status(large.pipeline).tables
    assert table.snapshot_progress is not None
    assert table.snapshot_progress.partial is not None
    assert table.snapshot_progress.partial in str(table.snapshot_progress)
    return Path(table.snapshot_progress.partial)


def rows_shown(large: LargeTable) -> list[tuple[object, ...]]:
    rows = rows_of_table(DeltaTable(shown(large))).sort_by("id")
    assert rows.column_names == large.columns
    return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))


@pytest.fixture(params=["deltalake", "staged"])
def large(request: pytest.FixtureRequest, database: Database, tmp_path: Path) -> LargeTable:
    """Read into files that become the table's own, or into others."""
    table = Table(BIG) if request.param == "deltalake" else COMMIT_COLUMNS
    large = LargeTable.at(created(database), tmp_path / "lake", table=table).prepared()
    return with_partial(large)


def with_partial(large: LargeTable, *, partial: bool = True) -> LargeTable:
    large.pipeline = replace(large.pipeline, snapshot=replace(large.pipeline.snapshot, partial=partial))
    return large


def test_each_chunk_that_is_read_is_shown(large: LargeTable) -> None:
    outcome, rows = large.read_on(), large.rows()
    assert outcome.error is not None
    assert str(shown(large)) in outcome.error.hint
    first = rows_shown(large)
    large.read_on()
    second = rows_shown(large)
    assert set(first) < set(second) < set(rows)
    table = DeltaTable(shown(large))
    assert table.version() == 1
    assert "Not table public.big" in str(table.metadata().description)
    assert table.history(1)[0]["userMetadata"] == '{"partial": true, "table": "public.big"}'
    assert not DeltaTable.is_deltatable(large.pipeline.lake.table(BIG))
    for command in (lambda: verify(large.pipeline, no_spark), lambda: maintain(large.pipeline, no_spark)):
        command()
    assert rows_shown(large) == second
    path = shown(large)
    large.read_on(to_the_end=True)
    large.assert_equal()
    assert not DeltaTable.is_deltatable(str(path))
    large.database.execute("UPDATE big SET n = -n WHERE id % 7 = 0")
    synced_without_spark(large.pipeline)
    large.assert_equal()
    at_once = replace(large.pipeline, retention=Retention(change_log=timedelta(0), cuts=timedelta(0)))
    assert maintain(at_once, no_spark).errors == ()
    large.assert_equal()


def test_many_chunks_in_one_run(large: LargeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each in a commit of its own: the log gets checkpoints."""
    commit, seen = PartialTable.commit, list[tuple[int, int, int]]()

    def committed(table: PartialTable) -> None:
        commit(table)
        if DeltaTable.is_deltatable(table.path):
            delta, checkpoints = DeltaTable(table.path), Path(table.path, "_delta_log").glob("*.checkpoint.parquet")
            seen.append((delta.version(), len(list(checkpoints)), rows_of_table(delta).num_rows))

    monkeypatch.setattr(partial_table, "_SECONDS", 0.0)
    monkeypatch.setattr(PartialTable, "commit", committed)
    large.read_on(to_the_end=True)
    version, checkpoints, rows = seen[-1]
    assert version == len(seen) - 2 > 10  # at the end there was nothing left to show
    assert (checkpoints, rows) == (version // 10, ROWS)
    large.assert_equal()


@pytest.mark.parametrize("seed", [1, 2])
def test_changes_and_ddl_between_chunks(large: LargeTable, seed: int) -> None:
    """After DDL it begins again, with the new columns. Of the rows, each that it shows was the source's once."""
    chance, altered = random.Random(seed), 0  # noqa: S311
    seen = set(large.rows())
    while large.read_on().error is not None:
        path = shown(large)
        assert set(rows_shown(large)) <= seen, path
        with large.database.connect() as connection:
            for statement in changes(chance):
                connection.execute(statement)
        if altered < 2 and chance.random() < 0.5:
            altered += 1
            large.database.execute(f"ALTER TABLE big ADD e{altered} int DEFAULT {altered}")
            capture(large.pipeline)
            seen = set()
        seen |= set(large.rows())
    assert altered
    large.assert_equal()
    synced_without_spark(large.pipeline)
    large.assert_equal()


def test_killed_before_it_shows_a_chunk(large: LargeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    large.read_on()
    first = len(rows_shown(large))
    for killed in ("add", "commit"):
        with monkeypatch.context() as patched:
            patched.setattr(PartialTable, killed, crash)
            with pytest.raises(Crash):
                large.read_on()
    assert len(rows_shown(large)) == first
    large.read_on()
    assert len(rows_shown(large)) > 2 * first
    log = shown(large) / "_delta_log"
    large.pipeline = replace(large.pipeline, lake=Lake(large.pipeline.lake.path))  # another process
    (log / "00000000000000000000.json").unlink()  # as when somebody is killed who removes it
    large.read_on()
    assert len(large.chunks_read) * first * 0.7 < len(rows_shown(large)) < ROWS
    large.read_on(to_the_end=True)
    large.assert_equal()
    assert not log.exists()


@pytest.mark.parametrize("statement", ["TRUNCATE big", "VACUUM FULL big"])
def test_what_is_of_no_use_any_more_is_not_shown(large: LargeTable, statement: str) -> None:
    large.read_on()
    large.database.execute(statement, "INSERT INTO big SELECT -g, 0, repeat('t', 300) FROM generate_series(1, 3000) g")
    large.read_on()
    assert set(rows_shown(large)) <= set(large.rows())
    large.read_on(to_the_end=True)
    large.assert_equal()


def test_beside_the_table_that_is_there(large: LargeTable) -> None:
    large.read_on(to_the_end=True)
    before = large.lake_rows()
    large.database.execute("UPDATE big SET n = -n")
    large.read_on()
    assert {row[1] for row in rows_shown(large)} <= {-number for number in range(ROWS + 1)}
    assert large.lake_rows() == before
    assert maintain(large.pipeline, no_spark).errors == ()
    assert rows_shown(large)
    large.read_on(to_the_end=True)
    large.assert_equal()


def test_it_can_be_turned_off_and_on_while_a_table_is_read(large: LargeTable) -> None:
    """What is read while it is off cannot be shown later, and is not read again."""
    large.read_on()
    first, path = rows_shown(large), shown(large)
    with_partial(large, partial=False).read_on()
    assert not DeltaTable.is_deltatable(str(path))
    with_partial(large).read_on()
    assert set(first) < set(rows_shown(large))
    assert len(large.chunks_read) == 3
    large.read_on(to_the_end=True)
    large.assert_equal()


def test_somebody_compacts_it(large: LargeTable) -> None:
    large.read_on()
    large.read_on()
    path = shown(large)
    DeltaTable(path).alter.set_table_description("theirs")
    large.read_on()
    assert len(set(rows_shown(large))) == len(rows_shown(large))
    large.read_on(to_the_end=True)
    large.assert_equal()
    assert not DeltaTable.is_deltatable(str(path))


def test_drop_removes_it(large: LargeTable) -> None:
    large.read_on()
    report = drop(large.pipeline, lake=True)
    assert report.left == ()
    assert not [file for file in Path(large.pipeline.lake.path).rglob("*") if file.is_file()]


def test_on_an_object_store(
    database: Database, tmp_path: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    large = with_partial(LargeTable.at(created(database), tmp_path))
    storage = Storage(StoreSettings(s3_server.endpoint, "us-east-1", path_style=True))
    lake = Lake(f"s3://{s3_server.bucket}/{database.name}", storage)
    large.pipeline = replace(large.pipeline, lake=lake)
    large.prepared().read_on()
    path = lake.table(BIG) / "partial"

    def ids() -> list[int]:
        table = DeltaTable(path, storage_options=storage_options(path))
        return list(rows_of_table(table).column("id").to_pylist())

    first = ids()
    large.database.execute("UPDATE big SET n = -n WHERE id % 3 = 0")
    large.read_on()
    assert set(first) < set(ids()) < set(range(1, ROWS + 1))
    large.read_on(to_the_end=True)
    assert not files_below(path / "_delta_log")
    table = DeltaTable(lake.table(BIG), storage_options=storage_options(lake.root))
    rows = rows_of_table(table).sort_by("id").select(large.columns)
    assert list(zip(*(column.to_pylist() for column in rows.columns), strict=True)) == large.rows()
