"""Another mode for a table that is followed, under load: against an audit log that triggers keep in the source."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.follow import Follower, FollowRound
from spark_jobs.lake.cuts import latest_cut
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.options.table_mode import Mode
from spark_jobs.repair.new_generations import begin_generations
from spark_jobs.replay.as_of import table_as_of
from spark_jobs.run import Run
from spark_jobs.snapshot.exporter import Exporter
from tests.at_night import at_night
from tests.fixtures.servers import Database
from tests.spark.audited_item import CHANGES, EMPTIED, ITEM, Item, audited_item

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]


@pytest.fixture
def item(spark: SparkSession, database: Database, tmp_path: Path) -> Item:
    return audited_item(spark, database, tmp_path / "lake")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("before", "mode"),
    [("mirror", "history"), ("history", "mirror"), ("append", "soft_delete")],
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


# each mode is begun once, and the mirror left and come back to
ROUND: tuple[Mode, ...] = ("append", "mirror", "soft_delete", "history")
LONGER: tuple[Mode, ...] = ("history", "mirror", "append", "mirror", "soft_delete", "history")


@pytest.mark.parametrize("modes", [ROUND, at_night(LONGER)], ids=["round", "longer"])
def test_there_and_back_with_columns_that_change(item: Item, modes: tuple[Mode, ...]) -> None:
    """The columns keep their numbers: what is renamed later is still the same."""
    (taken,) = item.sync("mirror").snapshots
    item.run(CHANGES[:3])
    item.sync("mirror")
    item.run([["ALTER TABLE item ADD w int DEFAULT 5", "ALTER TABLE item RENAME v TO words"]])
    item.run([["UPDATE item SET w = 6, words = 'wide' WHERE id = 2", "DELETE FROM item WHERE id = 3"]])
    item.sync("mirror")
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
    run = Run(item.in_mode("history"), lambda: item.spark)
    (changed,) = begin_generations(run, {ITEM: ""}, Exporter(run.pipeline.source.dsn)).modes
    assert cut is not None
    told = item.spark.sql(f"DESCRIBE HISTORY delta.`{item.path}` LIMIT 1").collect()[0]["userMetadata"]
    assert json.loads(told)["mode_changed"] == {
        "before": "mirror",
        "base_version": changed.base_version,
        "known_since": str(taken.lsn),
    }
    since, shown = item.state, latest_cut(item.pipeline.lake)
    assert (since.commits, since.generation) == (before.commits + 1, replace(before.generation, mode="history"))
    assert shown is not None
    assert (shown.lsn, shown.ordinal) == (cut.lsn, cut.ordinal)
    assert [(table.generation, table.version) for table in shown.tables] == [(str(since.generation), since.version)]
    # what it was is still to be had, in the mode that it had
    copied = table_as_of(Run(item.in_mode("history"), lambda: item.spark), ITEM, Lsn(cut.lsn), str(tmp_path / "copy"))
    assert copied.rows == len(item.rows("history"))


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
