"""Two drivers that write one version of a table on S3: another's job is held between its look at the version and its
PUT while we commit, and we while it commits.

With our LogStore nothing is lost. With Delta's own the later PUT replaces the earlier commit, and both succeed; if it
was ours, the next sync notices that and applies it again.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

import pytest

from spark_jobs.configuration import MergeEngine
from tests.cli.command import Command
from tests.fixtures.s3_server import S3Server
from tests.fixtures.servers import Database
from tests.fixtures.store_proxy import Fault, Request, StoreProxy, proxied, through
from tests.spark.s3_pipelines import answer, on_s3, started

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.nightly, pytest.mark.timeout(1200)]

TABLES = ["public.plain", "public.second", "public.third"]
OUR_STORE: dict[str, str] = {}
DELTAS_OWN = {"spark.delta.logStore.s3.impl": "io.delta.storage.S3SingleDriverLogStore"}
_SECONDS = 300


@dataclass
class Gate:
    """A rule of the store: commits to this table wait until it is open."""

    arrived: Event = field(default_factory=Event)
    opened: Event = field(default_factory=Event)

    def __call__(self, request: Request) -> Fault | None:
        if request.commits and "/plain/" in request.path:
            self.arrived.set()
            assert self.opened.wait(_SECONDS)
        return None


@dataclass(frozen=True)
class Rivals:
    """We, and another Spark driver that writes our table; each reaches the store through a proxy of its own."""

    database: Database
    ours: Command
    theirs: Command
    our_proxy: StoreProxy
    their_proxy: StoreProxy

    def change(self) -> None:
        self.database.execute(
            "UPDATE plain SET n = n + 1 WHERE id < 3", "INSERT INTO plain SELECT max(id) + 1, 0 FROM plain"
        )

    def synced(self) -> str:
        """What the sync says."""
        said = self.ours("sync")
        assert said.exit_code == 0, said.stderr
        assert "defect" not in said.stderr
        return said.stderr

    def is_equal(self) -> bool:
        said = self.ours("verify")
        assert said.exit_code in (0, 1), said.stderr
        return said.exit_code == 0


@contextmanager
def held(proxy: StoreProxy, start: Callable[[], subprocess.Popen[str]]) -> Iterator[subprocess.Popen[str]]:
    """A process that is about to commit; it goes on when the context ends."""
    gate = Gate()
    with proxy.under(gate):
        process = start()
        try:
            while not gate.arrived.wait(0.1):
                assert process.poll() is None, "it has ended before its commit"
            yield process
        finally:
            gate.opened.set()
            process.wait(_SECONDS)


@contextmanager
def rivals(
    database: Database, s3: S3Server, folder: Path, engine: MergeEngine, ours: dict[str, str], theirs: dict[str, str]
) -> Iterator[Rivals]:
    """``ours`` and ``theirs``: settings of Spark."""
    for number, table in enumerate(TABLES):
        database.execute(
            f"CREATE TABLE {table} (id int PRIMARY KEY, n int)", f"INSERT INTO {table} VALUES (1, {number})"
        )
    with proxied(s3.endpoint) as our_proxy, proxied(s3.endpoint) as their_proxy:
        made = Rivals(
            database,
            on_s3(folder / "ours", database, through(our_proxy, s3), TABLES, engine, ours),
            on_s3(folder / "theirs", database, through(their_proxy, s3), TABLES, config=theirs),
            our_proxy,
            their_proxy,
        )
        made.synced()
        database.execute("INSERT INTO plain VALUES (2, 0)")  # so that there are two files to compact
        made.synced()
        yield made


@pytest.mark.parametrize("store", [OUR_STORE, DELTAS_OWN], ids=["our store", "Delta's own"])
@pytest.mark.parametrize(("engine", "job"), [("auto", "alter"), ("auto", "optimize"), ("spark", "alter")])
def test_their_job_is_held_while_we_commit(
    database: Database, s3_server: S3Server, tmp_path: Path, job: str, engine: MergeEngine, store: dict[str, str]
) -> None:
    with rivals(database, s3_server, tmp_path, engine, OUR_STORE, store) as both:
        both.change()
        with held(both.their_proxy, lambda: started(both.theirs, job)) as process:
            assert "has lost commit" not in both.synced()
            assert both.is_equal()
        if job == "optimize" and store == OUR_STORE:
            assert process.returncode == 1, "it is told that the files which it has put together are gone"
        else:
            assert process.returncode == 0, "their job has succeeded"
        next_command = both.ours("verify")
        assert ("has lost commit" in next_command.stderr) is (store != OUR_STORE), "the later PUT replaces ours"
        assert next_command.exit_code == 0, "and what it has replaced is brought back"
        assert "has lost commit" not in both.synced()


@pytest.mark.parametrize("engine", ["auto", "spark"])
@pytest.mark.parametrize("store", [OUR_STORE, DELTAS_OWN], ids=["our store", "Delta's own"])
def test_we_are_held_while_their_job_commits(
    database: Database, s3_server: S3Server, tmp_path: Path, engine: MergeEngine, store: dict[str, str]
) -> None:
    with rivals(database, s3_server, tmp_path, engine, store, OUR_STORE) as both:
        both.change()
        with held(both.our_proxy, lambda: started(both.ours, "sync_once")) as process:
            answer(started(both.theirs, "alter"))
        assert answer(process) == [[]]
        assert both.is_equal()
        [properties] = answer(started(both.theirs, "properties"))
        # what is written without Spark is conditional in any case
        assert ("by" in properties) is (store == OUR_STORE or engine == "auto")
        assert "has lost commit" not in both.synced()
