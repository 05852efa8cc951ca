"""What docs/disaster-recovery.md promises when a part of the lake, or all of it, is gone. No Spark."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from spark_jobs.configuration import Pipeline
from spark_jobs.errors import SlotError
from spark_jobs.lake.cuts import latest_cut
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.status import pipeline_status
from spark_jobs.sync import sync
from spark_jobs.verify.verify import verify
from tests.cli.command import configured
from tests.fixtures.no_spark import no_spark
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres

NAMES = ("orders", "items")


@pytest.fixture
def shop(database: Database, tmp_path: Path) -> Pipeline:
    database.execute(
        *(f"CREATE TABLE {table} (id int PRIMARY KEY, n int)" for table in NAMES),
        *(f"INSERT INTO {table} SELECT g, 0 FROM generate_series(1, 50) g" for table in NAMES),
    )
    pipeline = pipeline_of(database, tmp_path / "lake", *NAMES)
    read_again(pipeline, database, NAMES)
    return pipeline


def read_again(pipeline: Pipeline, database: Database, tables: tuple[str, ...]) -> None:
    """A sync takes new snapshots of these tables alone; the next changes follow, and every row is equal."""
    synced = sync(pipeline, no_spark)
    assert synced.errors == ()
    assert {taken.name.relname for taken in synced.snapshots} == set(tables)
    database.execute(*(f"UPDATE {table} SET n = n + 1 WHERE id < 9" for table in NAMES))
    followed = sync(pipeline, no_spark)
    assert (followed.errors, followed.snapshots) == ((), ())
    assert [table.verdict for table in verify(pipeline, no_spark).tables] == ["equal"] * len(NAMES)


def folder(pipeline: Pipeline) -> Path:
    return Path(pipeline.lake.path)


def test_a_tables_folder_that_is_gone_is_read_again(shop: Pipeline, database: Database) -> None:
    shutil.rmtree(shop.lake.table(QualifiedName("public", "orders")))
    read_again(shop, database, ("orders",))


def _adopted(pipeline: Pipeline, _: Database) -> Pipeline:
    return replace(pipeline, source=replace(pipeline.source, adopt_slot=True))


def _dropped(pipeline: Pipeline, database: Database) -> Pipeline:
    database.execute(f"SELECT pg_drop_replication_slot('{database.name}')")
    return pipeline


@pytest.mark.parametrize("begin_anew", [_adopted, _dropped])
@pytest.mark.parametrize("gone", ["", "change_log"])
def test_without_its_change_log_a_lake_begins_anew_only_if_told_to(
    shop: Pipeline, database: Database, gone: str, begin_anew: Callable[[Pipeline, Database], Pipeline]
) -> None:
    shutil.rmtree(folder(shop) / gone)
    database.execute("UPDATE orders SET n = n + 1 WHERE id < 5", "DELETE FROM items WHERE id = 50")
    with pytest.raises(SlotError, match="is read for another lake") as refused:
        sync(shop, no_spark)
    assert "source.adopt_slot: true" in refused.value.hint
    assert [str(error) for error in pipeline_status(shop).errors] == [str(refused.value)]
    before = latest_cut(shop.lake)
    pipeline = begin_anew(shop, database)
    read_again(pipeline, database, NAMES)
    cut = latest_cut(shop.lake)
    assert cut is not None
    assert before is None or cut.number > before.number
    assert {table.version for table in cut.tables} == {
        DeltaTable(shop.lake.table(QualifiedName("public", table))).version() for table in NAMES
    }


def _without_its_newest_file(log: Path) -> None:
    max(log.glob("*.parquet"), key=lambda file: file.stat().st_mtime_ns).unlink()


def _without_its_first_commit(log: Path) -> None:
    min((log / "_delta_log").glob("*.json")).unlink()


@pytest.mark.parametrize("damage", [_without_its_newest_file, _without_its_first_commit])
def test_a_damaged_change_log_is_moved_away(
    shop: Pipeline, database: Database, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    log = folder(shop) / "change_log"
    damage(log)
    database.execute("UPDATE orders SET n = n + 1 WHERE id = 1")  # or there would be nothing to write to the log
    # by a process of its own: this one still knows what it has written
    refused = configured(tmp_path, database.dsn, database.name, [f"public.{name}" for name in NAMES])("sync")
    assert refused.exit_code == 1
    assert refused.problem.startswith(f"the change log {log} cannot be read: ")
    assert f"move {log} away, set source.adopt_slot: true and sync" in refused.hint
    log.rename(folder(shop) / "change_log.damaged")
    read_again(_adopted(shop, database), database, NAMES)


def test_cuts_that_are_gone_are_written_anew(shop: Pipeline, database: Database) -> None:
    shutil.rmtree(folder(shop) / "cuts")
    read_again(shop, database, ())
    assert latest_cut(shop.lake) is not None


def test_a_change_log_that_was_set_back_is_restored(shop: Pipeline, database: Database, tmp_path: Path) -> None:
    """``recover`` would begin a chapter in which windows are missing that are applied; it moves nothing."""
    log = DeltaTable(shop.lake.change_log)
    newest = log.version()
    log.restore(newest - 1)
    confirmed = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = current_database()"
    before = database.execute(confirmed)
    command = configured(tmp_path, database.dsn, database.name, [f"public.{name}" for name in NAMES])
    assert "ahead of the change log" in command("sync").problem
    refused = command("recover")
    assert refused.exit_code == 1
    assert "somebody has restored an earlier version of it" in refused.problem
    assert refused.hint.startswith(f"RESTORE delta.`{shop.lake.change_log}` TO VERSION AS OF {newest}; else move ")
    assert database.execute(confirmed) == before
    log.restore(newest)
    read_again(shop, database, ())
