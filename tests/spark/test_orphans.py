"""A writer whose locks are gone goes on while the next run does its work: of both one commits, and nothing is twice.

Here in one session, with writers held where the test wants them; ``test_orphans_of_connect`` kills real clients.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from _pytest.mark import ParameterSet

from spark_jobs.apply.apply_tables import apply_tables
from spark_jobs.apply.table_applied import TableApplied
from spark_jobs.apply.table_range import TableRange
from spark_jobs.capture.capture import capture
from spark_jobs.configuration import MergeEngine
from spark_jobs.errors import LakeError
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.snapshot.snapshot_tables import TableSnapshot
from spark_jobs.sync import sync
from tests.at_night import at_night
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database
from tests.spark.commit_chain import OurCommit, faults, our_commits
from tests.spark.followed_pipeline import Followed
from tests.spark.held_session import Gate, Step, held_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

# by the statement that writes it: what one run finds, and what comes until the next
CHANGES = {
    "append": (("INSERT INTO t VALUES (101, 'a'), (102, 'a')",), ("INSERT INTO t VALUES (103, 'b')",)),
    "overwrite": (
        ("TRUNCATE t", "INSERT INTO t VALUES (1, 'a'), (2, 'a')"),
        ("TRUNCATE t", "INSERT INTO t VALUES (2, 'b'), (3, 'b')"),
    ),
    "merge": (
        ("UPDATE t SET v = 'a' WHERE id < 5", "DELETE FROM t WHERE id = 7", "UPDATE t SET id = 99 WHERE id = 9"),
        ("UPDATE t SET v = v || 'b' WHERE id < 3", "INSERT INTO t VALUES (7, 'b')", "DELETE FROM t WHERE id = 99"),
    ),
}
ENGINES = {"spark": "spark", "auto": "deltalake"}
T = QualifiedName("public", "t")


def beside_a_held_one(*by_day: tuple[str, str]) -> list[ParameterSet]:
    """What is written, and by which engine the other one writes; by night each. Whatever the engine, Spark empties a
    table."""
    every = [("merge", "auto"), ("overwrite", "spark"), ("append", "auto"), ("append", "spark"), ("merge", "spark")]
    return [pytest.param(*each) if each in by_day else at_night(*each) for each in every]


@pytest.fixture
def one_table(spark: SparkSession, database: Database, tmp_path: Path) -> Followed:
    """In the database; its publication, slot and log are made, and no snapshot is taken."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t SELECT generate_series(1, 20), '-'")
    return Followed.start(spark, database, tmp_path / "lake", "t")


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate.made(tmp_path / "gate")


@pytest.fixture
def in_background() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(2)


def writer(
    followed: Followed, run_id: str, held: tuple[Gate, Step] | None = None, engine: MergeEngine = "spark"
) -> Callable[[], TableApplied]:
    """Of all windows that are landed now, from the state that the table has now; without a lock."""
    spark = held_session(followed.spark, *held) if held else followed.spark
    pipeline = replace(followed.pipeline, merge_engine=engine)
    work = TableRange(Run(pipeline, lambda: spark, run_id=run_id), followed.state(T), followed.markers)
    return lambda: apply_tables([work])[0]


def change(followed: Followed, statements: tuple[str, ...]) -> int:
    """Change the source a window at a time; the last window's ordinal."""
    for statement in statements:
        followed.database.execute(statement)
        capture(followed.pipeline)
    return followed.markers[-1].ordinal


def chain(followed: Followed) -> list[OurCommit]:
    """The table's commits, without fault; numbered from 1 without a gap."""
    commits = our_commits(followed.pipeline.lake.table(T))
    assert faults(commits, followed.markers) == []
    assert [commit.number for commit in commits] == list(range(1, len(commits) + 1))
    return commits


def ranges(commits: list[OurCommit]) -> list[tuple[str, int, int]]:
    return [(commit.run_id, commit.first, commit.last) for commit in commits]


@pytest.mark.parametrize("step", [at_night("before"), "during"])
@pytest.mark.parametrize(("kind", "other"), beside_a_held_one(("merge", "auto")))
def test_an_orphan_that_is_overtaken_writes_nothing(
    one_table: Followed, gate: Gate, in_background: ThreadPoolExecutor, kind: str, other: MergeEngine, step: Step
) -> None:
    one_table.snapshot()
    stands = one_table.state(T).ordinal
    found, later = CHANGES[kind]
    change(one_table, found)
    orphan = in_background.submit(writer(one_table, "orphan", (gate, step)))
    gate.wait_for(1)
    last = change(one_table, later)
    applied = writer(one_table, "next", engine=other)()
    assert (applied.outcome, applied.engine) == ("applied", ENGINES[other])
    one_table.assert_equal()
    gate.open()
    assert orphan.result(300).outcome == "already applied", "its process lives, and has looked again"
    one_table.assert_equal()
    assert ranges(chain(one_table)) == [("", stands, stands), ("next", stands + 1, last)]


@pytest.mark.parametrize("step", [at_night("before"), "during"])
@pytest.mark.parametrize(("kind", "other"), beside_a_held_one(("overwrite", "spark")))
def test_the_next_run_that_is_overtaken_applies_what_the_orphan_left(
    one_table: Followed, gate: Gate, in_background: ThreadPoolExecutor, kind: str, other: MergeEngine, step: Step
) -> None:
    """The orphan commits when the next run has read the table's state already."""
    one_table.snapshot()
    stands = one_table.state(T).ordinal
    found, later = CHANGES[kind]
    middle = change(one_table, found)
    orphan = writer(one_table, "orphan", engine=other)
    last = change(one_table, later)
    following = in_background.submit(writer(one_table, "next", (gate, step)))
    gate.wait_for(1)
    applied = orphan()
    assert (applied.outcome, applied.engine) == ("applied", ENGINES[other])
    gate.open()
    applied = following.result(300)
    assert (applied.outcome, applied.first, applied.last) == ("applied", middle + 1, last)
    one_table.assert_equal()
    assert ranges(chain(one_table)) == [
        ("", stands, stands),
        ("orphan", stands + 1, middle),
        ("next", middle + 1, last),
    ]


def taking(followed: Followed, gate: Gate, step: Step) -> Callable[[], tuple[TableSnapshot, ...]]:
    held = replace(followed, spark=held_session(followed.spark, gate, step))
    return held.snapshot


@pytest.mark.usefixtures("read_by_executors")
@pytest.mark.parametrize(
    ("first", "step"), [(True, "before"), (False, "during"), at_night(True, "during"), at_night(False, "before")]
)
def test_a_snapshot_beside_the_next_run(
    one_table: Followed, gate: Gate, in_background: ThreadPoolExecutor, first: bool, step: Step
) -> None:
    """It is the older one: its process lives, so it puts its rows in place, and the next run goes on from there."""
    if not first:
        one_table.snapshot()
    orphan: Future[tuple[TableSnapshot, ...]] = in_background.submit(taking(one_table, gate, step))
    gate.wait_for(1)
    change(one_table, CHANGES["merge"][0])
    if first:
        one_table.snapshot()
    change(one_table, CHANGES["merge"][1])
    one_table.apply()
    one_table.assert_equal()
    gate.open()
    (taken,) = orphan.result(300)
    assert taken.error is None
    assert [commit.generation for commit in chain(one_table)][-1] == str(one_table.state(T).generation)
    (applied,) = one_table.apply()
    assert (applied.outcome, applied.error) == ("applied", None)
    one_table.assert_equal()
    chain(one_table)


@pytest.mark.usefixtures("read_by_executors")
def test_an_older_snapshot_behind_the_latest_cut_is_caught_up(
    spark: SparkSession, database: Database, tmp_path: Path, gate: Gate, in_background: ThreadPoolExecutor
) -> None:
    """The process that took it is killed before it could say so in the cuts. No later window changes the table."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t SELECT generate_series(1, 20), '-'")
    followed = Followed(spark, database, pipeline_of(database, tmp_path / "lake", "public.t", engine="spark"), (T,))
    assert sync(followed.pipeline, lambda: spark).errors == ()
    orphan = in_background.submit(taking(followed, gate, "before"))
    gate.wait_for(1)
    database.execute("UPDATE t SET v = 'a'")
    assert sync(followed.pipeline, lambda: spark).errors == ()
    gate.open()
    orphan.result(300)
    database.execute("CREATE TABLE other (id int PRIMARY KEY)", "INSERT INTO other VALUES (1)")
    report = sync(followed.pipeline, lambda: spark)
    assert report.errors == ()
    followed.assert_equal()
    assert report.cut is not None
    shown = report.cut.table(T)
    assert shown is not None
    assert shown.version == followed.state(T).version


def test_an_orphan_whose_staged_rows_are_swept_fails_and_writes_nothing(
    one_table: Followed, gate: Gate, in_background: ThreadPoolExecutor
) -> None:
    """The next run has committed, so the one after it sweeps."""
    one_table.snapshot()
    stands = one_table.state(T).ordinal
    last = change(one_table, ("INSERT INTO t SELECT g, 'many' FROM generate_series(1000, 25000) g",))
    orphan = in_background.submit(writer(one_table, "orphan", (gate, "before")))
    gate.wait_for(1)
    staging = Path(one_table.pipeline.lake.path, "_staging")
    assert list(staging.rglob("*.parquet"))
    assert writer(one_table, "next")().outcome == "applied"
    assert list(staging.rglob("*.parquet")), "one who has lost his lock may still need them"
    later = change(one_table, ("UPDATE t SET v = 'later' WHERE id < 5",))
    assert writer(one_table, "later")().outcome == "applied"
    assert not list(staging.rglob("*.parquet"))
    gate.open()
    left = orphan.result(300)
    assert (left.outcome, type(left.error)) == ("stopped", LakeError)
    one_table.assert_equal()
    assert ranges(chain(one_table)) == [("", stands, stands), ("next", stands + 1, last), ("later", last + 1, later)]
