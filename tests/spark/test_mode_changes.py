"""Another mode for a table that is followed, under load: against an audit log that triggers keep in the source."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.configuration import Pipeline, Retention, Table
from spark_jobs.errors import NeedsSnapshotError, OvertakenError
from spark_jobs.follow import Follower, FollowRound
from spark_jobs.lake.cuts import latest_cut
from spark_jobs.lake.table_state import TableState, table_state
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.maintain.maintain import maintain
from spark_jobs.new_generations import begin_generations
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.replay import change_mode
from spark_jobs.replay.as_of import table_as_of
from spark_jobs.replay.landed_windows import LandedWindows
from spark_jobs.sync import SyncReport, capture, sync
from spark_jobs.table_mode import Mode
from spark_jobs.verify.row_compare import compare
from spark_jobs.verify.verify import verify
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database
from tests.spark.audit import AUDIT, Row, audit_of, audited
from tests.spark.mode_oracle import Oracle, lake_rows, xids_by_lsn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

ITEM = QualifiedName("public", "item")
Transaction = Sequence[str]

# each kind of change, in transactions that do not overlap; ``doc`` is stored out of line
CHANGES: tuple[Transaction, ...] = (
    ("INSERT INTO item VALUES (100, 'new', repeat('x', 4000), 1)",),
    ("UPDATE item SET v = 'changed' WHERE id < 4", "UPDATE item SET n = 9 WHERE id = 5"),
    ("DELETE FROM item WHERE id IN (6, 7)",),
    ("UPDATE item SET id = 200 WHERE id = 8",),
    ("DELETE FROM item WHERE id = 9", "INSERT INTO item VALUES (9, 'again', NULL, NULL)"),
    ("INSERT INTO item VALUES (6, 'back', 'from the dead', 2)",),
    ("INSERT INTO item VALUES (300, 'short', 'life', 1)", "DELETE FROM item WHERE id = 300"),
)
EMPTIED: tuple[Transaction, ...] = (
    ("UPDATE item SET v = 'before' WHERE id IN (11, 12)",),
    ("TRUNCATE item", "INSERT INTO item SELECT g, 'after', repeat('z', 3000), 0 FROM generate_series(1, 30) g"),
    ("UPDATE item SET v = 'and on' WHERE id = 11", "UPDATE item SET id = 31 WHERE id = 12"),
)


@dataclass
class Item:
    """One audited table, and the pipeline that follows it."""

    spark: SparkSession
    database: Database
    pipeline: Pipeline
    reports: list[SyncReport] = field(default_factory=list)

    def run(self, transactions: Sequence[Transaction]) -> None:
        for statements in transactions:
            with self.database.connect() as connection, connection.transaction():
                for statement in statements:
                    connection.execute(statement)

    def in_mode(self, mode: Mode) -> Pipeline:
        return replace(self.pipeline, tables=(Table(ITEM, mode),))

    def sync(self, mode: Mode) -> SyncReport:
        report = sync(self.in_mode(mode), lambda: self.spark)
        assert report.errors == ()
        self.reports.append(report)
        return report

    @property
    def state(self) -> TableState:
        landed = LandedWindows.of(self.pipeline)
        state = table_state(self.pipeline.lake, ITEM, *landed.identity.stream)
        assert state is not None
        return state

    @property
    def path(self) -> str:
        return self.pipeline.lake.table(ITEM)

    def rows(self, mode: Mode) -> list[Row]:
        return lake_rows(self.spark, self.pipeline, "item", mode)

    def assert_as_audited(self, mode: Mode) -> None:
        """As if the table had been in this mode since its first snapshot."""
        oracle = Oracle(first_rows(), audit_of(self.database, "item"), xids_by_lsn(self.pipeline))
        oracle.assert_agrees(mode, self.rows(mode))

    def assert_current_rows(self, mode: Mode) -> None:
        """Those that the table shows as the source's are the source's; one by one, by two readers."""
        if mode == "mirror":
            (compared,) = compare(self.spark, self.pipeline, (ITEM,))
            assert compared.equal
        report = verify(self.in_mode(mode), lambda: self.spark)
        assert [table.verdict for table in report.tables] == ["equal"]

    @contextmanager
    def under_load(self) -> Iterator[None]:
        """A writer goes on while the context lasts."""
        stopping, failed = threading.Event(), list[BaseException]()

        def write() -> None:
            try:
                for transaction in endless_changes(random.Random(5)):  # noqa: S311 - no secret
                    if stopping.is_set():
                        return
                    self.run([transaction])
            except BaseException as error:  # noqa: BLE001 - raised by the test's thread
                failed.append(error)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            yield
        finally:
            stopping.set()
            writer.join()
        assert failed == []


def first_rows() -> list[Row]:
    return [{"id": g, "v": f"v{g}", "doc": "d" * (3000 + g), "n": g % 3} for g in range(1, 21)]


def endless_changes(chosen: random.Random) -> Iterator[Transaction]:
    """Of rows that may be there or not; every fortieth transaction empties the table."""
    for number in range(1 << 30):
        there, other, new = chosen.randrange(1, 40), chosen.randrange(1, 40), 1000 + number
        put = f"VALUES ({there}, 'w{number}', repeat('w', {3000 + number % 50}), {number % 7})"
        insert = f"INSERT INTO item {put} ON CONFLICT (id) DO NOTHING"
        kinds: tuple[Transaction, ...] = (
            (insert,),
            (f"UPDATE item SET n = n + 1 WHERE id IN ({there}, {other})",),
            (f"UPDATE item SET doc = repeat('u', 3500), v = 'u{number}' WHERE id = {there}",),
            (f"DELETE FROM item WHERE id = {there}",),
            (f"UPDATE item SET id = {new} WHERE id = {there}",),
            (f"DELETE FROM item WHERE id = {there}", insert),
        )
        yield ("TRUNCATE item", insert) if number % 40 == 39 else chosen.choice(kinds)


@pytest.fixture
def item(spark: SparkSession, database: Database, tmp_path: Path) -> Item:
    """Twenty rows; nothing is made yet of what follows them."""
    database.execute(
        *AUDIT,
        "CREATE TABLE item (id int PRIMARY KEY, v text, doc text, n int)",
        "ALTER TABLE item ALTER doc SET STORAGE EXTERNAL",
        "INSERT INTO item SELECT g, 'v' || g, repeat('d', 3000 + g), g % 3 FROM generate_series(1, 20) g",
        *audited("item"),
    )
    return Item(spark, database, pipeline_of(database, tmp_path / "lake", "public.item"))


@pytest.mark.parametrize(
    ("before", "mode"),
    [
        ("mirror", "history"),
        ("mirror", "append"),
        ("mirror", "soft_delete"),
        ("history", "mirror"),
        ("soft_delete", "history"),
        ("append", "soft_delete"),
    ],
)
def test_under_load_all_since_the_snapshot_is_kept(item: Item, before: Mode, mode: Mode) -> None:
    (taken,) = item.sync(before).snapshots
    for transactions in (CHANGES, EMPTIED):
        item.run(transactions)
        item.sync(before)
    with item.under_load():
        item.sync(before)
        (changed,) = item.sync(mode).modes
        item.sync(mode)
    item.sync(mode)
    assert [report.snapshots for report in item.reports[1:]] == [()] * (len(item.reports) - 1), "no source was read"
    assert (changed.before, changed.mode, changed.error) == (before, mode, None)
    if mode == "mirror":
        assert changed.windows == 0
    else:
        assert changed.known_since == taken.lsn
    assert item.state.snapshot_lsn == taken.lsn
    item.assert_as_audited(mode)
    if mode != "append":
        item.assert_current_rows(mode)


def test_there_and_back_with_columns_that_change(item: Item) -> None:
    """The columns keep their numbers: what is renamed later is still the same."""
    (taken,) = item.sync("mirror").snapshots
    item.run(CHANGES[:3])
    item.sync("mirror")
    item.run([["ALTER TABLE item ADD w int DEFAULT 5", "ALTER TABLE item RENAME v TO words"]])
    item.run([["UPDATE item SET w = 6, words = 'wide' WHERE id = 2", "DELETE FROM item WHERE id = 3"]])
    item.sync("mirror")
    modes: tuple[Mode, ...] = ("history", "mirror", "append", "mirror", "soft_delete", "history")
    for number, mode in enumerate(modes):
        item.run([[f"UPDATE item SET w = {number} WHERE id = 4"]])
        report = item.sync(mode)
        assert ([table.error for table in report.modes], report.snapshots) == ([None], ())
        assert mode == "mirror" or report.modes[0].known_since == taken.lsn
    item.run([["ALTER TABLE item RENAME words TO v", "ALTER TABLE item DROP w"]])
    item.run([["UPDATE item SET v = 'last' WHERE id = 4"]])
    assert item.sync("history").snapshots == ()
    rows = item.rows("history")
    assert [row["v"] for row in rows if row["id"] == 2 and row["_valid_to"] is None] == ["wide"]
    assert len([row for row in rows if row["id"] == 4]) == 2 + len(modes)
    item.assert_current_rows("history")


def test_the_commit_and_the_cut_tell_of_it(item: Item, tmp_path: Path) -> None:
    (taken,) = item.sync("mirror").snapshots
    item.run(CHANGES)
    item.sync("mirror")
    before, cut = item.state, latest_cut(item.pipeline.lake)
    (changed,) = begin_generations(lambda: item.spark, item.in_mode("history"), [ITEM]).modes
    assert cut is not None
    told = item.spark.sql(f"DESCRIBE HISTORY delta.`{item.path}` LIMIT 1").collect()[0]["userMetadata"]
    assert json.loads(told)["mode_changed"] == {
        "before": "mirror",
        "base_version": changed.base_version,
        "known_since": str(taken.lsn),
    }
    since, shown = item.state, latest_cut(item.pipeline.lake)
    assert (since.commits, since.mode, since.word) == (before.commits + 1, "history", before.word)
    assert shown is not None
    assert (shown.lsn, shown.ordinal) == (cut.lsn, cut.ordinal)
    assert [(table.generation, table.version) for table in shown.tables] == [(since.generation, since.version)]
    # what it was is still to be had, in the mode that it had
    copied = table_as_of(lambda: item.spark, item.in_mode("history"), ITEM, Lsn(cut.lsn), str(tmp_path / "copy"))
    assert copied.rows == len(item.rows("history"))


class Crash(BaseException):
    """Nothing of ours catches it."""


def crash(*_: Any) -> None:
    raise Crash


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


def test_a_writer_that_was_quicker_is_seen(item: Item) -> None:
    item.sync("mirror")
    item.run(CHANGES)
    item.sync("mirror")
    stale = item.state
    item.run(EMPTIED)
    item.sync("mirror")
    with pytest.raises(OvertakenError):
        change_mode._changed(item.spark, item.in_mode("history"), stale, "late")
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
        "public.item must be read again: its mode was append and is history, and the change log does not lead there:"
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
    assert [row["v"] for row in rows if row["id"] == 1 and row["_valid_to"] is not None] == ["v1", "changed"]
    item.assert_current_rows("history")


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


def test_follow_changes_the_mode_too(item: Item) -> None:
    (taken,) = item.sync("mirror").snapshots
    item.run(CHANGES)
    stopping, rounds = threading.Event(), list[FollowRound]()

    def report(done: FollowRound) -> None:
        rounds.append(done)
        if len(rounds) > 20 or done.errors or any(each.applied for each in rounds):
            stopping.set()

    follower = Follower(item.in_mode("history"), lambda: item.spark, every=0.2, stopping=stopping, report=report)
    follower.run()
    assert [done.errors for done in rounds] == [()] * len(rounds)
    assert [table.known_since for done in rounds for table in done.modes] == [taken.lsn]
    assert [done.snapshots for done in rounds] == [()] * len(rounds)
    item.sync("history")
    item.assert_as_audited("history")


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
    from spark_jobs.errors import LakeError

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
