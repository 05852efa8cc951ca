"""Partitions that are read again by a process that is killed, overtaken or crossed: equal in the end, exactly once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.apply.apply import apply
from spark_jobs.apply.table_applied import TableApplied
from spark_jobs.capture.capture import capture
from spark_jobs.errors import OvertakenError
from spark_jobs.follow import Follower, FollowRound
from spark_jobs.options.write_limits import WriteLimits
from spark_jobs.postgres.write_guard import WriteGuard
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.repair.read_partitions import PartitionsReport, read_partitions
from spark_jobs.run import Run
from spark_jobs.snapshot.exporter import Exporter
from spark_jobs.sync import sync
from tests.at_night import at_night
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database
from tests.fixtures.spark import for_few_rows
from tests.spark.commit_chain import faults, our_commits
from tests.spark.crash import started
from tests.spark.followed_pipeline import Followed
from tests.spark.held_session import Gate, held_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

T = QualifiedName("public", "t")
SCHEMA = (
    "CREATE TABLE t (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
    "CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (100)",
    "CREATE TABLE t_2 PARTITION OF t FOR VALUES FROM (100) TO (200)",
    "INSERT INTO t SELECT g, 'first' FROM generate_series(0, 199) g",
)
CHANGES = (
    "UPDATE t SET v = 'second' WHERE id % 2 = 0",
    "ALTER TABLE t DETACH PARTITION t_2",
    "UPDATE t_2 SET v = 'unseen' WHERE id > 150",
    "ALTER TABLE t ATTACH PARTITION t_2 FOR VALUES FROM (100) TO (200)",
    "DELETE FROM t WHERE id % 5 = 0",
)


@pytest.fixture
def returned(spark: SparkSession, database: Database, tmp_path: Path, jars_folder: Path) -> Followed:
    """Synced once; then a partition was detached, changed and attached again. Executors read it."""
    database.execute(*SCHEMA)
    pipeline = pipeline_of(database, tmp_path / "lake", str(T), engine="spark")
    by_executors = WriteLimits(in_memory_bytes=0)
    pipeline = replace(pipeline, spark=for_few_rows(jars_folder), writes=by_executors)
    assert sync(pipeline, lambda: spark).errors == ()
    database.execute(*CHANGES)
    return Followed(spark, database, pipeline, (T,))


def assert_once(followed: Followed, commits: int = 2) -> None:
    """Equal rows, and one chain of so many commits."""
    followed.assert_equal()
    made = our_commits(followed.pipeline.lake.table(T))
    assert faults(made, followed.markers) == []
    assert [commit.number for commit in made] == list(range(1, commits + 1))


@pytest.mark.parametrize("step", [at_night("partitions_staged"), "partitions_written"])
def test_killed_before_and_behind_the_commit(returned: Followed, tmp_path: Path, step: str) -> None:
    before, _ = returned.lake_rows(T)
    assert started(step, returned.pipeline, tmp_path).wait(300) == -signal.SIGKILL
    after, _ = returned.lake_rows(T)
    assert (after == before) is (step == "partitions_staged")
    staged = list(Path(returned.pipeline.lake.path, "_staging").rglob("*.parquet"))
    assert staged
    report = sync(returned.pipeline, lambda: returned.spark)
    assert (report.errors, report.snapshots) == ((), ())
    assert_once(returned)
    returned.database.execute("UPDATE t SET v = 'third' WHERE id = 1")
    assert sync(returned.pipeline, lambda: returned.spark).errors == ()
    assert_once(returned, 3)
    assert not [file for file in staged if file.exists()]


def read_again(run: Run, outcomes: Sequence[TableApplied]) -> PartitionsReport:
    with Exporter(run.pipeline.source.dsn) as exporter:
        return read_partitions(run, outcomes, exporter)


def stopped(followed: Followed) -> tuple[TableApplied, ...]:
    capture(followed.pipeline)
    return apply(Run(followed.pipeline, lambda: followed.spark)).tables


@pytest.mark.parametrize("step", [at_night("before"), "during"])
def test_one_that_is_overtaken_writes_nothing(
    returned: Followed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Its lock is gone, and the next run does the same work; more has happened by then."""
    gate = Gate.made(tmp_path / "gate")
    held = held_session(returned.spark, gate, "before" if step == "before" else "during")
    outcomes = stopped(returned)
    with ThreadPoolExecutor(1) as pool:
        lost = WriteGuard("", lambda: None)
        orphan = pool.submit(read_again, Run(returned.pipeline, lambda: held, lost), outcomes)
        gate.wait_for(1)
        returned.database.execute("INSERT INTO t VALUES (120, 'late')")
        report = read_again(Run(returned.pipeline, lambda: returned.spark), stopped(returned))
        assert [table.outcome for table in report.tables] == ["applied"]
        assert_once(returned)
        gate.open()
        (late,) = orphan.result(300).tables
    assert (late.outcome, late.error) == ("already applied", None), "its process lives, and has looked again"
    assert_once(returned)


def test_windows_across_the_snapshot_cost_another_attempt(returned: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    crossings = iter([True, False])

    export = Exporter.exported

    @contextmanager
    def crossed(exporter: Exporter, *arguments: Any) -> Iterator[object]:
        with export(exporter, *arguments) as found:
            if next(crossings, True):
                returned.database.execute("UPDATE t SET v = 'across' WHERE id = 1")
                capture(returned.pipeline)
            yield found

    outcomes = stopped(returned)
    with monkeypatch.context() as patched:
        patched.setattr(Exporter, "exported", crossed)
        report = read_again(Run(returned.pipeline, lambda: returned.spark), outcomes)
        assert [table.outcome for table in report.tables] == ["applied"]
        assert_once(returned)
        # again and again: the table is left for the next run, and not read whole
        returned.database.execute("DROP TABLE t_2")
        report = read_again(Run(returned.pipeline, lambda: returned.spark), stopped(returned))
    (left,) = report.tables
    assert isinstance(left.error, OvertakenError)
    assert "was detached or dropped" in left.error.what
    assert "could not be read again: another process lands windows across" in left.error.what
    final = sync(returned.pipeline, lambda: returned.spark)
    assert (final.errors, final.snapshots) == ((), ())
    assert_once(returned, 3)


@pytest.mark.parametrize("look", ["seen", "not seen"])
def test_a_table_that_is_altered_while_it_is_read(returned: Followed, look: str) -> None:
    """Two columns swap their names behind the snapshot: before the look of the window that ends there, or after it."""
    returned.database.execute("ALTER TABLE t ADD w text")
    assert sync(returned.pipeline, lambda: returned.spark).errors == ()
    returned.database.execute(*CHANGES)

    @contextmanager
    def altered() -> Iterator[None]:
        if look == "not seen":
            yield
        for rename in ("v TO x", "w TO v", "x TO w"):
            returned.database.execute(f"ALTER TABLE t RENAME {rename}")
        if look == "seen":
            yield

    outcomes = stopped(returned)
    before, _ = returned.lake_rows(T)
    report = read_again(Run(returned.pipeline, lambda: returned.spark, capturing=altered()), outcomes)
    assert report.tables == (), "a new snapshot of all of it is due"
    assert returned.lake_rows(T)[0] == before
    assert sync(returned.pipeline, lambda: returned.spark).errors == ()
    returned.assert_equal()


def test_one_process_that_follows_all_day(returned: Followed) -> None:
    """Its other thread lands windows meanwhile."""
    stopping, rounds = threading.Event(), list[FollowRound]()

    def report(done: FollowRound) -> None:
        rounds.append(done)
        returned.database.execute(f"INSERT INTO t VALUES (150 + {len(rounds)}, 'x') ON CONFLICT DO NOTHING")
        if len(rounds) == 3:
            returned.database.execute("DROP TABLE t_1")
        if len(rounds) >= 8 and not done.errors:
            stopping.set()

    Follower(returned.pipeline, lambda: returned.spark, every=0.2, stopping=stopping, report=report).run()
    assert sync(returned.pipeline, lambda: returned.spark).errors == ()
    returned.assert_equal()
    assert [name for done in rounds for name in done.snapshots] == []
