"""Clients of one Spark Connect server that are killed while it writes for them: what they leave must do no harm."""

from __future__ import annotations

import contextlib
import pickle
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from spark_jobs.change_log.log import ChangeLog
from spark_jobs.configuration import Pipeline, SparkOptions, WindowLimits
from spark_jobs.postgres.locks import table_lock
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.spark.session import spark_session
from spark_jobs.sync import sync
from tests.fixtures.advisory_locks import LockKey, TakeLock, any_held, lock_keys
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database
from tests.fixtures.spark_connect import ConnectServer
from tests.fixtures.standby_process import StandbyProcess, standby_process
from tests.orphan_kills.load import SCHEMA, TABLES, Load, load
from tests.spark.commit_chain import commits_after_death, our_commits
from tests.spark.followed_pipeline import Followed
from tests.spark.lake_differences import message_differences, table_differences

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# of the kills those that wait until the server writes a table; the others come at any moment
_INTO_WRITES = 0.8
_LONGEST_WRITE, _LONGEST_RUN = 1.0, 12.0
_SECONDS = 300


@dataclass
class Figures:
    """What a campaign has seen. ``differences`` is empty if all is well."""

    seed: int
    kills: int = 0
    into_writes: int = 0
    orphans_commits: int = 0
    transactions: int = 0
    windows: int = 0
    commits: int = 0
    client_errors: int = 0
    seconds: float = 0
    differences: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        counted = (
            f"transactions {self.transactions}, windows {self.windows}, commits to tables {self.commits},"
            f" errors that clients told {self.client_errors}"
        )
        return "\n".join(
            [
                f"seed {self.seed}: {self.kills} kills in {self.seconds:.0f} s",
                f"kills while the server worked at a table:         {self.into_writes}",
                f"commits by the server after their client's death: {self.orphans_commits}",
                counted,
                f"differences: {len(self.differences)}",
                *(f"  {difference}" for difference in self.differences),
            ]
        )


@dataclass(frozen=True)
class _Writes:
    """What a client has the server write; ``locks``: those of the tables, as ``pg_locks`` names them."""

    server: ConnectServer
    database: Database
    locks: frozenset[LockKey]

    def go_on(self, after: int) -> bool:
        """Whether the client writes a table, and the server executes a statement newer than this one."""
        return any_held(self.database.execute, self.locks) and self.server.running(after) > 0


def _table_locks(pipeline: Pipeline) -> frozenset[LockKey]:
    def of(table: str) -> TakeLock:
        return lambda connection: table_lock(connection, pipeline.source.slot, QualifiedName.parse(table))

    return lock_keys(pipeline.source.dsn, [of(table) for table in TABLES])


def run_campaign(database: Database, server: ConnectServer, folder: Path, kills: int, seed: int) -> Figures:
    """Kill so many clients, one after the other; then let all end, and compare."""
    started, figures = time.monotonic(), Figures(seed)
    database.execute(*SCHEMA)
    pipeline = pipeline_of(database, folder / "lake", *TABLES, engine="spark", messages=True)
    pipeline = replace(
        pipeline,
        spark=SparkOptions(remote=server.url),
        windows=WindowLimits(max_bytes=64 << 10, max_per_run=8),
    )
    file = folder / "pipeline.pickle"
    file.write_bytes(pickle.dumps(pipeline))
    with _stopped_in_the_end(spark_session(pipeline.spark)) as spark:
        assert sync(pipeline, lambda: spark, run_id="first").errors == ()
        deaths: dict[str, float] = {}
        with load(database, pipeline, seed) as busy:
            _kill_clients(_Writes(server, database, _table_locks(pipeline)), file, kills, seed, figures, deaths)
        report = sync(pipeline, lambda: spark, run_id="last")
        figures.differences += [f"the last sync: {error}" for error in report.errors]
        server.wait_until_idle()
        names = tuple(map(QualifiedName.parse, TABLES))
        _compare(Followed(spark, database, pipeline, names), busy, figures, deaths)
    figures.seconds = time.monotonic() - started
    return figures


@contextlib.contextmanager
def _stopped_in_the_end(spark: SparkSession) -> Iterator[SparkSession]:
    """Else the client goes on asking a server that is gone. A session of Connect is no context manager itself."""
    try:
        yield spark
    finally:
        spark.stop()


def _kill_clients(
    writes: _Writes, file: Path, kills: int, seed: int, figures: Figures, deaths: dict[str, float]
) -> None:
    rng = random.Random(seed)  # noqa: S311
    errors = file.with_name("clients.log")
    with contextlib.ExitStack() as stack:

        def standby(number: int) -> StandbyProcess:
            arguments = [str(file), f"client-{number}", f"{seed}-{number}"]
            return stack.enter_context(standby_process("tests.orphan_kills.client", arguments, errors))

        following = standby(1)
        for number in range(1, kills + 1):
            client = following
            client.wait_until_ready(_SECONDS)
            before = writes.server.newest()
            client.tell("go")
            following = standby(number + 1)
            _wait_for_its_moment(writes, before, rng)
            assert not client.ended, errors.read_text()
            figures.into_writes += writes.go_on(before)
            deaths[f"client-{number}"] = client.kill()
            figures.kills += 1
            sys.stderr.write(f"\r{number} of {kills} kills")
    sys.stderr.write("\n")
    figures.client_errors = len(errors.read_text().splitlines())


def _wait_for_its_moment(writes: _Writes, before: int, rng: random.Random) -> None:
    if rng.random() >= _INTO_WRITES:
        time.sleep(rng.uniform(0, _LONGEST_RUN))
        return
    deadline = time.monotonic() + _SECONDS
    while not writes.go_on(before):
        assert time.monotonic() < deadline, "no client writes anything"
        time.sleep(0.02)
    time.sleep(rng.uniform(0, _LONGEST_WRITE))


def _compare(followed: Followed, busy: Load, figures: Figures, deaths: dict[str, float]) -> None:
    lake, markers = followed.pipeline.lake, ChangeLog(followed.pipeline.lake.change_log).markers()
    figures.transactions, figures.windows = busy.transactions, len(markers)
    for name in followed.names:
        commits = our_commits(lake.table(name))
        figures.commits += len(commits)
        figures.orphans_commits += commits_after_death(commits, deaths)
        figures.differences += table_differences(followed, name, markers)
    figures.differences += message_differences(followed, busy.messages)
