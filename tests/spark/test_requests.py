"""What commands cost on an object store, in requests: in a process that has synced before, as in Dagster or ``follow``.
docs/sizing.md has the figures that this prints."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from spark_jobs.configuration import Lake, Pipeline
from spark_jobs.maintain.maintain import maintain
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
    def told(what: str, command: Callable[[], None], most: int) -> None:
        cost = followed.cost(command)
        sys.stdout.write(f"{what}: {cost} requests, at most {most}\n")
        assert cost <= most, what

    for _ in range(3):
        followed.changed(TABLES)
        followed.synced()
    followed.synced()  # the server may have written WAL of its own
    told("an idle sync", followed.synced, 20)
    followed.changed(TABLES[:1])
    told("a sync of one changed table", followed.synced, 75)
    followed.changed(TABLES[:10])
    told("a sync of ten changed tables", followed.synced, 250)
    told("the first maintain of 15 tables", followed.maintained, 300)
    told("maintain with nothing to do", followed.maintained, 300)
    for _ in range(40):
        followed.changed(TABLES[:1])
        followed.synced()
    told("maintain after 40 more commits", followed.maintained, 300)
    told("maintain with nothing to do, later", followed.maintained, 300)
    for _ in range(4):
        followed.changed(TABLES, "INSERT INTO {0} SELECT max(id) + 1, 0 FROM {0}")
        followed.synced()
    # each file that is put together costs a request, and so does each commit since a table's checkpoint
    told("maintain with 75 small files of tables", followed.maintained, 300 + 2 * 75)
