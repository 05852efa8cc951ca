"""One source table in several modes at once, written by Spark: rebuilt, read again, and brought into other modes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.configuration import Pipeline, Table
from spark_jobs.options.table_mode import Mode
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.replay.as_of import table_as_of
from spark_jobs.replay.landed_windows import LandedWindows
from spark_jobs.replay.rebuild import rebuild
from spark_jobs.run import Run
from spark_jobs.snapshot.snapshot import snapshot
from spark_jobs.sync import SyncReport, sync
from spark_jobs.verify.verify import verify
from tests.apply.several_modes import in_modes
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database
from tests.spark.audit import audit_of
from tests.spark.audited_item import CHANGES, EMPTIED, ITEM, Item, audited_item, first_rows
from tests.spark.mode_oracle import Oracle, lake_rows, xids_by_lsn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.nightly]

HISTORY = QualifiedName("public", "item__history")


@pytest.fixture
def item(spark: SparkSession, database: Database, tmp_path: Path) -> Item:
    made = audited_item(spark, database, tmp_path / "lake")
    return replace(made, pipeline=replace(made.pipeline, merge_engine="spark"))


def synced(item: Item, *modes: Mode) -> SyncReport:
    report = sync(pipeline_in(item, *modes), lambda: item.spark)
    assert report.errors == ()
    return report


def pipeline_in(item: Item, *modes: Mode) -> Pipeline:
    return replace(item.pipeline, tables=in_modes(ITEM, *modes))


def assert_as_audited(item: Item, table: Table) -> None:
    oracle = Oracle(first_rows(), audit_of(item.database, "item"), xids_by_lsn(item.pipeline))
    oracle.assert_agrees(table.mode, lake_rows(item.spark, item.pipeline, table.name.relname, table.mode))


@pytest.mark.parametrize("modes", [("mirror", "history"), ("mirror", "append"), ("soft_delete", "history")])
def test_by_spark_and_rebuilt(item: Item, modes: tuple[Mode, ...]) -> None:
    pipeline = pipeline_in(item, *modes)
    synced(item, *modes)
    for transactions in (CHANGES[:3], CHANGES[3:], EMPTIED):
        item.run(transactions)
        synced(item, *modes)
    landed = LandedWindows.of(pipeline)
    further = in_modes(ITEM, *modes)[1]
    before = item.state
    report = rebuild(Run(pipeline, lambda: item.spark), landed.start, landed.end, [further.name])
    assert [(table.name, table.outcome) for table in report.tables] == [(further.name, "rebuilt")]
    assert item.state == before, "the other table is not touched"
    item.run([("UPDATE item SET n = 5 WHERE id = 2",)])
    synced(item, *modes)
    for table in pipeline.tables or ():
        assert_as_audited(item, table)


def test_one_is_read_again_and_copied(item: Item, tmp_path: Path) -> None:
    both = pipeline_in(item, "mirror", "history")
    synced(item, "mirror", "history")
    item.run(CHANGES)
    synced(item, "mirror", "history")
    run, before = Run(both, lambda: item.spark), item.state
    (taken,) = snapshot(run, [HISTORY])
    assert (taken.error, taken.name) == (None, HISTORY)
    assert item.state == before
    item.run(EMPTIED)
    assert [done.outcome for done in synced(item, "mirror", "history").tables] == ["applied", "applied"]
    for table in both.tables or ():
        assert_as_audited(item, table)
    copied = table_as_of(run, HISTORY, LandedWindows.of(both).end, str(tmp_path / "copy"))
    assert copied.rows == len(lake_rows(item.spark, both, "item__history", "history"))


def test_modes_that_swap(item: Item) -> None:
    """The table itself changes its mode, as with ``mode``; what is named for the other mode begins, and what was named
    for this one is kept as it was."""
    synced(item, "mirror", "history")
    item.run(CHANGES)
    synced(item, "mirror", "history")
    kept = lake_rows(item.spark, item.pipeline, "item__history", "history")
    report = synced(item, "history", "mirror")
    assert [(str(table.name), table.before, table.mode) for table in report.modes] == [
        ("public.item", "mirror", "history")
    ]
    assert [str(taken.name) for taken in report.snapshots] == ["public.item__mirror"]
    item.run(EMPTIED)
    synced(item, "history", "mirror")
    assert_as_audited(item, Table(ITEM, "history"))
    assert [table.verdict for table in verify(pipeline_in(item, "history", "mirror"), lambda: item.spark).tables] == [
        "equal",
        "equal",
    ]
    assert lake_rows(item.spark, item.pipeline, "item__history", "history") == kept


def test_partitions_that_come_and_go(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    """Of the mirror only their rows are read again, as if it had the source table's name."""
    database.execute(
        "CREATE TABLE item (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
        "CREATE TABLE item_1 PARTITION OF item FOR VALUES FROM (0) TO (100)",
        "INSERT INTO item SELECT g, 'x' FROM generate_series(1, 50) g",
        "CREATE TABLE item_2 (id int PRIMARY KEY, v text)",
        "INSERT INTO item_2 SELECT g, 'y' FROM generate_series(100, 150) g",
    )
    item = Item(spark, database, pipeline_of(database, tmp_path / "lake", engine="spark"))
    synced(item, "history", "mirror")
    database.execute("ALTER TABLE item ATTACH PARTITION item_2 FOR VALUES FROM (100) TO (200)")
    report = synced(item, "history", "mirror")
    assert [taken.name for taken in report.snapshots] == [ITEM]
    read = [done.partitions.rows for done in report.tables if done.name != ITEM and done.partitions is not None]
    assert read == [51]
    database.execute("UPDATE item SET v = 'z' WHERE id % 10 = 0")
    synced(item, "history", "mirror")
    verified = verify(pipeline_in(item, "history", "mirror"), lambda: spark).tables
    assert [table.verdict for table in verified] == ["equal", "equal"]
