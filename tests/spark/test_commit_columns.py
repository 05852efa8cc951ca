"""``metadata_columns``: every row of every mode names the commit that last wrote it, against the audit log that
triggers keep in the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.configuration import Table
from spark_jobs.options.table_mode import CommitColumn, Mode
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.replay.rebuild import rebuild
from spark_jobs.run import Run
from spark_jobs.sync import sync
from spark_jobs.verify.verify import verify
from tests.at_night import at_night
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.row_compare import lake_rows
from tests.fixtures.servers import Database
from tests.spark.audit import Row, audit_of
from tests.spark.audited_item import CHANGES, EMPTIED, ITEM, audited_item
from tests.spark.commit_oracle import BOTH, assert_commits, last_writers
from tests.spark.commit_tables import NAMES, STEPS, TABLES, CommitTables
from tests.spark.followed_pipeline import Followed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]


@dataclass
class Tables:
    """The tables of all modes, and who follows them."""

    followed: Followed
    made: CommitTables

    @classmethod
    def at(cls, spark: SparkSession, database: Database, lake: Path, *, on_driver_bytes: int) -> Tables:
        made = CommitTables.created(database)
        followed = Followed.start(spark, database, lake, *TABLES)
        pipeline = replace(followed.pipeline, tables=made.configured)
        followed = replace(followed, pipeline=pipeline, on_driver_bytes=on_driver_bytes)
        assert [taken.error for taken in followed.snapshot()] == [None] * len(TABLES)
        return cls(followed, made)

    def run(self, transactions: Sequence[Sequence[str]]) -> None:
        self.made.run(transactions)

    def sync(self, what: str) -> None:
        assert [(what, applied.error) for applied in self.followed.sync()] == [(what, None)] * len(TABLES)

    def assert_commits(self) -> None:
        pipeline, spark = self.followed.pipeline, self.followed.spark
        self.made.assert_commits(
            pipeline, self.followed.state, lambda table: lake_rows(spark, pipeline.lake.table(table)).to_pylist()
        )

    def assert_verified(self) -> None:
        report = verify(self.followed.pipeline, lambda: self.followed.spark)
        assert [table.verdict for table in report.tables] == ["equal"] * len(TABLES)


@pytest.mark.nightly  # by day the suite of the writers has them
@pytest.mark.parametrize("on_driver_bytes", [128 << 20, 0], ids=["on_driver", "on_executors"])
def test_each_step(spark: SparkSession, database: Database, tmp_path: Path, on_driver_bytes: int) -> None:
    tables = Tables.at(spark, database, tmp_path / "lake", on_driver_bytes=on_driver_bytes)
    followed = tables.followed
    tables.assert_commits()
    first = [transaction for step in list(STEPS)[:3] for transaction in STEPS[step]]
    together = {"the first": first, **{step: STEPS[step] for step in list(STEPS)[3:]}}
    steps = STEPS if on_driver_bytes == 0 else together
    for step, transactions in steps.items():
        tables.run(transactions)
        tables.sync(step)
        tables.assert_commits()
    tables.assert_verified()
    start, end = followed.markers[1].window.lo, followed.markers[-1].window.hi
    again = rebuild(Run(followed.pipeline, lambda: spark), start, end, followed.names)
    assert [table.outcome for table in again.tables] == ["rebuilt"] * len(TABLES)
    tables.assert_commits()


@pytest.mark.nightly
def test_all_at_once_is_the_same_as_step_by_step(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    """Which of equal rows go does not depend on where windows begin."""
    tables = Tables.at(spark, database, tmp_path / "lake", on_driver_bytes=128 << 20)
    for transactions in list(STEPS.values())[:3]:
        tables.run(transactions)
    tables.sync("all")
    tables.assert_commits()


@pytest.mark.nightly
def test_a_new_snapshot(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    """Rows of a mirror name the snapshot; a version that goes on, and a row that was deleted, name their commits."""
    tables = Tables.at(spark, database, tmp_path / "lake", on_driver_bytes=128 << 20)
    tables.run([["DELETE FROM {t} WHERE id = 1", "UPDATE {t} SET n = 7 WHERE id = 3"]])
    tables.sync("before")
    before = _by_id(tables.followed, "softly"), _by_id(tables.followed, "versions")
    tables.run([["ALTER TABLE {t} DISABLE TRIGGER USER", "DELETE FROM {t} WHERE id = 4"]])
    taken = tables.followed.snapshot()
    assert [table.error for table in taken] == [None] * len(TABLES)
    lsn = int(taken[0].lsn)
    for name in ("plain", "copies"):
        assert set(_by_id(tables.followed, name).values()) <= {(lsn,), (lsn, lsn)}
    softly, versions = _by_id(tables.followed, "softly"), _by_id(tables.followed, "versions")
    assert softly == {key: before[0][1] if key == 1 else (lsn,) for key in range(1, 21)}
    assert versions == {**before[1], 4: (lsn,)}


def _by_id(followed: Followed, name: str) -> dict[int, tuple[int, ...]]:
    held = lake_rows(followed.spark, followed.pipeline.lake.table(QualifiedName("public", name))).to_pylist()
    return {
        key: tuple(sorted(row["_commit_lsn"] for row in held if row["id"] == key)) for key in {r["id"] for r in held}
    }


@pytest.mark.parametrize("mode", ["mirror", at_night("soft_delete"), at_night("history")])
def test_turned_on_and_off(spark: SparkSession, database: Database, tmp_path: Path, mode: Mode) -> None:
    """From the rows that the table has, all its past ones included: nothing is read from the source."""
    item = audited_item(spark, database, tmp_path / "lake")
    item.sync(mode)
    item.run(CHANGES)
    item.sync(mode)
    past = item.rows(mode)

    def synced(*columns: CommitColumn) -> list[Row]:
        pipeline = replace(item.pipeline, tables=(Table(ITEM, mode, metadata_columns=columns),))
        report = sync(pipeline, lambda: spark)
        assert (report.errors, report.snapshots) == ((), ())
        assert [table.verdict for table in verify(pipeline, lambda: spark).tables] == ["equal"]
        return list(lake_rows(spark, item.path).to_pylist())

    on = synced(*BOTH)
    assert all(row["_commit_lsn"] and row["_commit_time"] for row in on)
    assert sorted(map(repr, past)) == sorted(repr({k: v for k, v in row.items() if k not in BOTH}) for row in on)
    if mode == "history":
        assert all(row["_commit_lsn"] == (row["_valid_to_lsn"] or row["_valid_from_lsn"]) for row in on)
    newest = max(row["_commit_lsn"] for row in on)
    item.run([["UPDATE item SET n = 77 WHERE id = 14"]])
    item.run([["ALTER TABLE item ADD w int DEFAULT 4"], ["UPDATE item SET w = 5 WHERE id = 15"]])
    since = [row for row in synced(*BOTH) if row["_commit_lsn"] > newest]
    assert {row["id"] for row in since} == {14, 15}
    assert not set(synced()[0]) & {*BOTH}


@pytest.mark.nightly
def test_another_mode_has_them_since_its_snapshot(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    item = audited_item(spark, database, tmp_path / "lake")
    (taken,) = item.sync("mirror").snapshots
    for transactions in (CHANGES, EMPTIED):
        item.run(transactions)
        item.sync("mirror")
    pipeline = replace(item.pipeline, tables=(Table(ITEM, "soft_delete", metadata_columns=BOTH),))
    (changed,) = sync(pipeline, lambda: spark).modes
    assert changed.known_since == taken.lsn
    held = lake_rows(spark, item.path).to_pylist()
    since = [{"id": g, "v": f"v{g}", "doc": "d" * (3000 + g), "n": g % 3} for g in range(1, 21)]
    expected = last_writers("soft_delete", NAMES, since, audit_of(database, "item"))
    assert_commits(pipeline, item.state, held, NAMES, expected)


@pytest.mark.nightly
def test_partitions_that_are_read_again_name_the_reading(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    """And the rows of other partitions their commits."""
    database.execute(
        "CREATE TABLE parted (id int PRIMARY KEY, t text) PARTITION BY RANGE (id)",
        "CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (100)",
        "CREATE TABLE parted_new (LIKE parted INCLUDING ALL)",
        "INSERT INTO parted SELECT g, 'row' FROM generate_series(1, 9) g",
        "INSERT INTO parted_new SELECT g, 'unseen' FROM generate_series(101, 105) g",
    )
    name = QualifiedName("public", "parted")
    pipeline = replace(pipeline_of(database, tmp_path / "lake"), tables=(Table(name, metadata_columns=BOTH),))
    (taken,) = sync(pipeline, lambda: spark).snapshots
    database.execute(
        "UPDATE parted SET t = 'beside' WHERE id = 3",
        "ALTER TABLE parted ATTACH PARTITION parted_new FOR VALUES FROM (100) TO (200)",
        "UPDATE parted SET t = 'seen' WHERE id = 104",
    )
    report = sync(pipeline, lambda: spark)
    (applied,) = [table for table in report.tables if table.partitions is not None]
    assert (report.errors, report.snapshots, applied.partitions.rows) == ((), (), 5)  # type: ignore[union-attr]
    held = {row["id"]: row["_commit_lsn"] for row in lake_rows(spark, pipeline.lake.table(name)).to_pylist()}
    read = {lsn for key, lsn in held.items() if key > 100}
    assert len(read) == 1
    assert {lsn for key, lsn in held.items() if key < 100 and key != 3} == {int(taken.lsn)}
    assert int(taken.lsn) < held[3] < max(read)
    assert [table.verdict for table in verify(pipeline, lambda: spark).tables] == ["equal"]
