"""Where another mode cannot grow from what the lake has: a snapshot is taken, or the table stays as it is."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.capture.capture import capture
from spark_jobs.configuration import Retention, Table
from spark_jobs.errors import LakeError, NeedsSnapshotError, OvertakenError
from spark_jobs.maintain.maintain import maintain
from spark_jobs.options.column_options import ChosenType, ChosenTypes, ColumnOptions
from spark_jobs.options.table_mode import Mode
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.replay import change_mode
from spark_jobs.run import Run
from spark_jobs.sync import SyncReport, sync
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.row_compare import compare
from tests.fixtures.servers import Database
from tests.spark.audit import audit_of
from tests.spark.audited_item import CHANGES, EMPTIED, ITEM, Item, audited_item
from tests.spark.crash_here import Crash, crash
from tests.spark.mode_oracle import Oracle, xids_by_lsn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]


@pytest.fixture
def item(spark: SparkSession, database: Database, tmp_path: Path) -> Item:
    return audited_item(spark, database, tmp_path / "lake")


def test_a_crash_before_the_commit_leaves_the_old_mode(item: Item, monkeypatch: pytest.MonkeyPatch) -> None:
    item.sync("mirror")
    item.run(CHANGES)
    item.sync("mirror")
    before = item.state
    item.run(EMPTIED)
    with monkeypatch.context() as patched:
        patched.setattr(change_mode, "_put_in_place", crash)
        with pytest.raises(Crash):
            sync(item.in_mode("history"), lambda: item.spark)
    assert item.state == before
    assert len(item.sync("history").modes) == 1
    item.assert_as_audited("history")


@pytest.mark.nightly
def test_a_writer_that_was_quicker_is_seen(item: Item) -> None:
    item.sync("mirror")
    item.run(CHANGES)
    item.sync("mirror")
    stale = item.state
    item.run(EMPTIED)
    item.sync("mirror")
    with pytest.raises(OvertakenError):
        change_mode._changed(Run(item.in_mode("history"), lambda: item.spark), stale)
    assert item.state.mode == "mirror"
    item.assert_current_rows("mirror")


def vacuum(item: Item) -> None:
    """All versions but the newest lose files."""
    conf = "spark.databricks.delta.retentionDurationCheck.enabled"
    item.spark.conf.set(conf, "false")
    try:
        item.spark.sql(f"OPTIMIZE delta.`{item.path}`")
        item.spark.sql(f"VACUUM delta.`{item.path}` RETAIN 0 HOURS")
    finally:
        item.spark.conf.unset(conf)


@pytest.mark.nightly
def test_where_versions_are_gone_the_oldest_that_is_left_is_taken(item: Item) -> None:
    (taken,) = item.sync("mirror").snapshots
    item.run(CHANGES)
    item.sync("mirror")
    vacuum(item)
    left, held = item.state, {row["id"]: row for row in item.rows("mirror")}
    audit_before = len(audit_of(item.database, "item"))
    item.run(EMPTIED)
    item.sync("mirror")
    report = item.sync("history")
    (changed,) = report.modes
    assert (report.snapshots, changed.error) == ((), None)
    assert changed.base_version == left.version
    assert changed.known_since > taken.lsn
    audit = audit_of(item.database, "item")[audit_before:]
    Oracle(list(held.values()), audit, xids_by_lsn(item.pipeline)).assert_agrees("history", item.rows("history"))
    assert {row["_valid_from_lsn"] for row in item.rows("history")} >= {int(changed.known_since)}
    item.assert_current_rows("history")


@pytest.mark.nightly
def test_where_no_version_shows_the_rows_a_snapshot_is_taken(item: Item) -> None:
    """Changes alone are no rows, and of the snapshot's version a file is gone."""
    item.sync("append")
    item.run(CHANGES)
    item.sync("append")
    vacuum(item)
    item.run(EMPTIED)
    report = item.sync("history")
    assert report.modes == ()
    (taken,) = report.snapshots
    assert taken.reason == (
        "public.item needs a re-snapshot: its mode was append and is history, and the change log does not lead there:"
        " a VACUUM has removed files of the versions that it could be made from"
    )
    assert item.state.cause is not None
    assert item.state.cause.reason == taken.reason
    item.assert_current_rows("history")
    item.run([["UPDATE item SET n = 77 WHERE id = 1"]])
    item.sync("history")
    item.assert_current_rows("history")


def test_where_the_log_does_not_reach_a_snapshot_is_taken(item: Item) -> None:
    item.database.execute("CREATE TABLE other (id int PRIMARY KEY)")
    other = QualifiedName("public", "other")
    both = replace(item.pipeline, tables=(Table(ITEM), Table(other)))
    assert sync(both, lambda: item.spark).errors == ()
    # the table is not followed for longer than the log is kept
    alone = replace(item.pipeline, tables=(Table(other),), retention=Retention(change_log=timedelta(0)))
    for number in range(3):
        item.run(CHANGES[number : number + 1])
        item.database.execute(f"INSERT INTO other VALUES ({number})")
        assert sync(alone, lambda: item.spark).errors == ()
    assert maintain(alone, lambda: item.spark).errors == ()
    report = sync(replace(both, tables=(Table(ITEM, "history"), Table(other))), lambda: item.spark)
    assert (report.errors, report.modes) == ((), ())
    (taken,) = report.snapshots
    assert "does not lead on from any version of the table" in taken.reason
    item.assert_current_rows("history")


@pytest.mark.nightly
def test_other_types_cost_a_snapshot_and_are_kept_by_the_next_mode(item: Item) -> None:
    """What the lake has was written in the types of then; the types of now are what the next mode begins with."""
    item.run([["ALTER TABLE item ADD amount numeric DEFAULT 1.5"]])
    item.sync("mirror")
    item.run(CHANGES)
    item.sync("mirror")
    typed = Table(ITEM, options=ColumnOptions(ChosenTypes.of({"amount": ChosenType.parse("decimal(9,2)")})))

    def synced(mode: Mode) -> SyncReport:
        return sync(replace(item.pipeline, tables=(replace(typed, mode=mode),)), lambda: item.spark)

    report = synced("history")
    assert (report.errors, report.modes) == ((), ())
    assert "type of column amount was changed" in report.snapshots[0].reason
    item.run(EMPTIED)
    report = synced("soft_delete")
    assert ([table.error for table in report.modes], report.snapshots) == ([None], ())
    held = item.spark.read.format("delta").load(item.path).where("id = 1").collect()
    assert [row["amount"] for row in held] == [Decimal("1.50")]
    report = synced("mirror")
    assert ([table.error for table in report.modes], report.snapshots) == ([None], ())
    (compared,) = compare(item.spark, replace(item.pipeline, tables=(typed,)), (ITEM,))
    assert compared.equal


def test_rows_that_were_rewritten_meanwhile_are_read_again_behind_it(item: Item) -> None:
    """The log leads up to the ALTER, so what came before it is kept; a snapshot shows what came of it."""
    item.sync("mirror")
    item.run(CHANGES)
    item.sync("mirror")
    item.database.execute("ALTER TABLE item ALTER n TYPE int USING n + 100")
    report = item.sync("history")
    assert [table.error for table in report.modes] == [None]
    (taken,) = report.snapshots
    assert "rewritten by DDL" in taken.reason
    rows = item.rows("history")
    assert {row["_valid_from_lsn"] for row in rows if row["_valid_to"] is None and row["n"] is not None} == {
        int(taken.lsn)
    }
    ended = [(row["_valid_from_lsn"], row["v"]) for row in rows if row["id"] == 1 and row["_valid_to"] is not None]
    assert [v for _, v in sorted(ended)] == ["v1", "changed"]
    item.assert_current_rows("history")


@pytest.mark.nightly
def test_a_key_that_the_log_does_not_know_costs_a_snapshot(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    """Rows were equal before the table had a key."""
    database.execute(
        "CREATE TABLE item (id int, v text)",
        "ALTER TABLE item REPLICA IDENTITY FULL",
        "INSERT INTO item VALUES (1, 'a'), (1, 'a'), (2, 'b')",
    )
    keyless = Item(spark, database, pipeline_of(database, tmp_path / "lake", "public.item"))
    keyless.sync("mirror")
    capture(keyless.pipeline)
    database.execute("DELETE FROM item WHERE id = 1", "INSERT INTO item VALUES (1, 'c')")
    database.execute("ALTER TABLE item ADD PRIMARY KEY (id)")
    report = keyless.sync("history")
    assert report.modes == ()
    assert "does not say yet what key it had" in report.snapshots[0].reason
    keyless.assert_current_rows("history")
    # without a key: every change can be kept all the same
    assert keyless.sync("append").modes[0].error is None


def test_a_change_that_the_mode_cannot_show_costs_a_snapshot(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    """Of several changes of a row the mirror showed the last one alone."""
    database.execute("CREATE TABLE item (id int PRIMARY KEY, at date)", "INSERT INTO item VALUES (1, '2024-01-01')")
    dated = Item(spark, database, pipeline_of(database, tmp_path / "lake", "public.item"))
    dated.sync("mirror")
    database.execute("UPDATE item SET at = 'infinity'", "UPDATE item SET at = '2024-01-02'")
    dated.sync("mirror")
    report = dated.sync("history")
    assert report.modes == ()
    assert "the change log does not lead there" in report.snapshots[0].reason
    dated.assert_current_rows("history")


def test_errors_that_may_pass_do_not_cost_a_snapshot(item: Item, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table is reported, and keeps its mode and its rows."""
    item.sync("mirror")
    before = item.state

    def fail(*_: Any) -> None:
        raise LakeError("No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(change_mode, "_put_in_place", fail)
        report = sync(item.in_mode("history"), lambda: item.spark)
    assert [str(error) for error in report.errors] == ["No space left on device"]
    assert (report.snapshots, item.state) == ((), before)
    assert not isinstance(report.errors[0], NeedsSnapshotError)
    item.sync("history")
    item.assert_as_audited("history")
