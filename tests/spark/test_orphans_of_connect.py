"""Clients of a Spark Connect server are killed while it writes for them: what it still commits does no harm.

The server is of this test alone: held writes keep its cores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.configuration import SparkOptions, Table
from spark_jobs.qualified_name import QualifiedName
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database
from tests.fixtures.spark_connect import ConnectServer, connect_server
from tests.fixtures.waiting import wait_until
from tests.spark.commit_chain import OurCommit, faults, our_commits
from tests.spark.connect_client import Order
from tests.spark.followed_pipeline import Followed
from tests.spark.held_session import Gate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.timeout(1500)]

# by how they are written: appended to, overwritten, merged
APPENDED, EMPTIED, MERGED = (QualifiedName("public", name) for name in ("appended", "emptied", "merged"))
AGAIN, FIRST = (QualifiedName("public", name) for name in ("again", "first"))
# what each run finds
CHANGES = [
    (
        f"INSERT INTO appended VALUES ({100 + n})",
        f"TRUNCATE emptied; INSERT INTO emptied VALUES ({n})",
        f"UPDATE merged SET v = v || '{n}' WHERE id < {10 + n}; DELETE FROM merged WHERE id = {15 + n}",
        f"INSERT INTO again VALUES ({100 + n}); INSERT INTO first VALUES ({100 + n})",
    )
    for n in range(4)
]


@pytest.fixture(scope="module")
def connect(jars_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    pytest.importorskip("grpc")
    with connect_server(tmp_path_factory.mktemp("connect"), jars_folder, cores=10) as running:
        yield running


@dataclass(frozen=True)
class Shop:
    """``earlier`` does not follow the table FIRST yet."""

    followed: Followed
    connect: ConnectServer
    folder: Path

    @property
    def earlier(self) -> Followed:
        names = tuple(name for name in self.followed.names if name != FIRST)
        return replace(
            self.followed, names=names, pipeline=replace(self.followed.pipeline, tables=tuple(map(Table, names)))
        )

    def change(self, number: int) -> None:
        self.followed.database.execute(*CHANGES[number])

    def kill(self, run: Order, writers: int) -> Gate:
        """The run, when so many of its writes are held; the server does not hear of it."""
        assert run.gate is not None
        with run.process(self.folder):
            run.gate.wait_for(writers)
        assert self.connect.running() >= writers, "the server has given up what its client began"
        return run.gate

    def sync(self, run_id: str) -> None:
        Order("sync", self.followed.pipeline, run_id).to_its_end(self.folder)

    def commits(self, name: QualifiedName) -> list[OurCommit]:
        """Without fault."""
        commits = our_commits(self.followed.pipeline.lake.table(name))
        assert faults(commits, self.followed.markers) == []
        assert [commit.number for commit in commits] == list(range(1, len(commits) + 1))
        return commits

    def writers(self, name: QualifiedName) -> list[str]:
        return [commit.run_id for commit in self.commits(name)]


@pytest.fixture
def shop(spark: SparkSession, database: Database, connect: ConnectServer, tmp_path: Path) -> Shop:
    """All tables but FIRST are synced."""
    names = (APPENDED, EMPTIED, MERGED, AGAIN, FIRST)
    for name in names:
        database.execute(
            f"CREATE TABLE {name.relname} (id int PRIMARY KEY, v text)",
            f"INSERT INTO {name.relname} SELECT generate_series(1, 20), '-'",
        )
    pipeline = pipeline_of(database, tmp_path / "lake", *map(str, names), engine="spark")
    pipeline = replace(pipeline, spark=SparkOptions(remote=connect.url))
    made = Shop(Followed(spark, database, pipeline, names), connect, tmp_path)
    Order("sync", made.earlier.pipeline, "synced").to_its_end(tmp_path)
    return made


def two_orphans(shop: Shop) -> list[Gate]:
    """Each of three tables is being written by two runs whose clients are dead."""
    gates = []
    for number in (1, 2):
        shop.change(number)
        run = Order("sync", shop.earlier.pipeline, f"orphan-{number}", gate=Gate.made(shop.folder / f"gate-{number}"))
        # the fourth table waits for a thread of the client
        gates.append(shop.kill(run, 3))
    return gates


@pytest.mark.nightly  # by day writers are held in this session: test_orphans
def test_orphans_that_end_after_the_next_run(shop: Shop) -> None:
    gates = two_orphans(shop)
    shop.change(3)
    shop.sync("next")
    shop.followed.assert_equal()
    for gate in gates:
        gate.open()
    shop.connect.wait_until_idle()
    shop.followed.assert_equal()
    for name in shop.earlier.names:
        assert shop.writers(name) == ["synced", "next"]
    shop.change(0)
    shop.sync("last")
    shop.followed.assert_equal()
    assert shop.writers(MERGED) == ["synced", "next", "last"]


@pytest.mark.nightly
def test_orphans_that_end_before_the_next_run(shop: Shop) -> None:
    """The later one is quicker."""
    first, second = two_orphans(shop)
    second.open()
    wait_until(lambda: all("orphan-2" in shop.writers(name) for name in (APPENDED, EMPTIED, MERGED)))
    first.open()
    shop.connect.wait_until_idle()
    shop.change(3)
    shop.sync("next")
    shop.followed.assert_equal()
    for name in (APPENDED, EMPTIED, MERGED):
        assert shop.writers(name) == ["synced", "orphan-2", "next"]


@pytest.mark.nightly
def test_orphaned_snapshots_that_end_after_the_next_run(shop: Shop) -> None:
    """One would make a table, the other put new rows into one that is there."""
    gate = Gate.made(shop.folder / "gate")
    shop.change(1)
    shop.sync("made")  # the publication holds all tables by now
    table = Path(shop.followed.pipeline.lake.table(FIRST))
    table.rename(table.with_name("moved away"))
    shop.kill(Order("snapshot", shop.followed.pipeline, "orphan", (AGAIN, FIRST), gate), 2)
    shop.change(2)
    shop.sync("next")
    shop.followed.assert_equal()
    gate.open()
    shop.connect.wait_until_idle()
    shop.followed.assert_equal()
    assert shop.writers(AGAIN) == ["synced", "made", "next"]
    assert shop.writers(FIRST)[:1] == ["next"]
    shop.change(3)
    shop.sync("last")
    shop.followed.assert_equal()


@pytest.mark.nightly
def test_a_run_whose_session_has_written_before_sees_that_it_is_overtaken(shop: Shop) -> None:
    """Delta notes in the session which version it committed last, and a clone inherits what its origin has noted."""
    shop.change(1)
    pipeline = shop.earlier.pipeline
    gate = shop.kill(Order("sync", pipeline, "orphan", gate=Gate.made(shop.folder / "gate")), 3)
    shop.change(2)
    run = Order("sync", pipeline, "next", gate=Gate.made(shop.folder / "next"), step="before", wrote_before=True)
    with run.process(shop.folder) as following:
        assert run.gate is not None
        run.gate.wait_for(3)
        gate.open()
        shop.connect.wait_until_idle()
        run.gate.open()
        said = following.communicate(timeout=400)[0]
        assert following.returncode == 0, said
    shop.earlier.assert_equal()
    for name in (APPENDED, EMPTIED, MERGED):
        assert shop.writers(name) == ["synced", "orphan", "next"]
