"""What commands cost on an object store, in requests: in a process that has synced before, as in Dagster or ``follow``.
docs/sizing.md has the figures that this prints.

A server writes WAL of its own, when it likes: a sync lands a window of it, and the change log and the cuts get a commit
more. So that no figure depends on when that was, an idle sync is the cheapest of several, of a changed table there are
as many syncs as between two checkpoints, and each maintenance begins with tables that have just got one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from spark_jobs.configuration import Lake, Pipeline
from spark_jobs.delta.checkpoints import CHECKPOINT_INTERVAL, write_checkpoint
from spark_jobs.maintain.maintain import maintain
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.storage import Storage, StoreSettings
from spark_jobs.sync import sync
from spark_jobs.verify.verify import verify
from tests.fixtures.no_spark import no_spark
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.s3_server import S3Server
from tests.fixtures.servers import Database

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

TABLES = [f"t{number}" for number in range(15)]


@dataclass(frozen=True)
class _Followed:
    """Without a JVM: each of the commands fails if it asks for one."""

    database: Database
    pipeline: Pipeline
    s3: S3Server

    def changed(self, tables: Sequence[str], statement: str = "UPDATE {} SET n = n + 1") -> None:
        self.database.execute(*(statement.format(table) for table in tables))

    def synced(self) -> None:
        assert sync(self.pipeline, no_spark).errors == ()

    def maintained(self) -> None:
        assert maintain(self.pipeline, no_spark).errors == ()

    def checkpointed(self) -> None:
        """Otherwise a command reads each commit since the last one, of which there may be nine a table."""
        lake = self.pipeline.lake
        for path in (lake.change_log, lake.cuts, *(lake.table(QualifiedName("public", table)) for table in TABLES)):
            write_checkpoint(path)

    def cost(self, command: Callable[[], None]) -> int:
        before = self.s3.requests()
        command()
        return self.s3.requests() - before


@pytest.fixture
def followed(
    database: Database, tmp_path: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> Iterator[_Followed]:
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    for table in TABLES:
        database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, n int)", f"INSERT INTO {table} VALUES (1, 0)")
    pipeline = pipeline_of(database, tmp_path, *(f"public.{table}" for table in TABLES))
    storage = Storage(StoreSettings(s3_server.endpoint, "us-east-1", path_style=True))
    made = _Followed(
        database, replace(pipeline, lake=Lake(f"s3://{s3_server.bucket}/{database.name}", storage)), s3_server
    )
    made.synced()
    yield made
    assert verify(made.pipeline, no_spark).problems == ()


def test_a_sync_and_maintenance_cost_few_requests(followed: _Followed) -> None:
    def told(what: str, cost: int, most: int) -> None:
        sys.stdout.write(f"{what}: {cost} requests, at most {most}\n")
        assert cost <= most, what

    def told_of_maintenance(what: str, most: int) -> None:
        followed.checkpointed()
        told(f"maintain {what}", followed.cost(followed.maintained), most)

    def sync_of_changed(tables: Sequence[str]) -> int:
        followed.changed(tables)
        return followed.cost(followed.synced)

    for _ in range(3):
        followed.changed(TABLES)
        followed.synced()
    told("an idle sync", min(followed.cost(followed.synced) for _ in range(4)), 20)
    costs = [sync_of_changed(TABLES[:1]) for _ in range(CHECKPOINT_INTERVAL)]
    sys.stdout.write(f"syncs of one changed table: {costs} requests\n")
    told("these in the mean", sum(costs) // len(costs), 65)
    told("a sync of ten changed tables", sync_of_changed(TABLES[:10]), 250)
    told_of_maintenance("15 tables for the first time", 200)
    told_of_maintenance("with nothing to do", 120)
    for _ in range(40):
        followed.changed(TABLES[:1])
        followed.synced()
    told_of_maintenance("after 40 more commits", 220)
    told_of_maintenance("with nothing to do, later", 120)
    for _ in range(4):
        followed.changed(TABLES, "INSERT INTO {0} SELECT max(id) + 1, 0 FROM {0}")
        followed.synced()
    told_of_maintenance("with 75 small files of tables", 260)
