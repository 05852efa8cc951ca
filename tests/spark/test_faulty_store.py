"""An object store that fails now and then: its answer is lost, or it refuses a request. Each write of a sync meets it
once, and afterwards source and lake are equal."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.configuration import Lake, Pipeline
from spark_jobs.errors import CdcError, LakeError
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.snapshot.snapshot import snapshot
from spark_jobs.storage import Storage, StoreSettings
from spark_jobs.sync import sync
from tests.at_night import at_night
from tests.fixtures.no_spark import no_spark
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.row_compare import compare
from tests.fixtures.s3_server import SECRET_KEY, S3Server
from tests.fixtures.servers import Database
from tests.fixtures.store_proxy import Fault, Request, StoreProxy, lost_commits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

NAMES = (QualifiedName("public", "busy"), QualifiedName("public", "other"))
_MOST_WRITES = 30  # of a sync; it makes eight
_TRIES = 11  # of object_store, the first one included


@dataclass
class Strikes:
    """A rule of the store: ``fault`` at the request ``at`` of a sync, counted from 0, and at those after it, ``most``
    in all. Writes alone are counted and meet it, unless ``reads``."""

    fault: Fault
    at: int
    most: int = 1
    reads: bool = False
    seen: int = 0
    struck: list[str] = field(default_factory=list)

    def __call__(self, request: Request) -> Fault | None:
        if not (request.writes or self.reads):
            return None
        number, self.seen = self.seen, self.seen + 1
        if number < self.at or len(self.struck) >= self.most:
            return None
        self.struck.append(request.path)
        return self.fault


@pytest.fixture
def pipeline(
    database: Database, s3_server: S3Server, store_proxy: StoreProxy, monkeypatch: pytest.MonkeyPatch
) -> Pipeline:
    """Of two tables, into an empty lake; Spark, which has no connector for this store, is not needed."""
    for name in NAMES:
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, n int)", f"INSERT INTO {name} VALUES (1, 0)")
    for variable, value in s3_server.environment.items():
        monkeypatch.setenv(variable, value)
    lake = Lake(
        f"s3://{s3_server.bucket}/{database.name}",
        Storage(StoreSettings(store_proxy.endpoint, "us-east-1", path_style=True)),
    )
    return replace(pipeline_of(database, Path(), *map(str, NAMES), messages=True), lake=lake)


@pytest.fixture
def followed(pipeline: Pipeline) -> Pipeline:
    """Both tables have their snapshots."""
    assert synced(pipeline) == ()
    return pipeline


def synced(pipeline: Pipeline) -> tuple[CdcError, ...]:
    try:
        return sync(pipeline, no_spark).errors
    except CdcError as error:
        return (error,)


def test_no_first_answer_to_a_commit_comes(
    spark: SparkSession, database: Database, pipeline: Pipeline, store_proxy: StoreProxy
) -> None:
    """What creates the tables of the lake, then changes them, and begins one of them anew."""
    for _ in range(2):
        database.execute("UPDATE busy SET n = n + 1", "SELECT pg_logical_emit_message(true, 'of', 'the test')")
        with store_proxy.under(lost_commits()):
            assert synced(pipeline) == ()
        assert [found for found in compare(spark, pipeline, NAMES) if not found.equal] == []
    with store_proxy.under(lost_commits()):
        assert len(snapshot(Run(pipeline, no_spark), NAMES[:1])) == 1
        assert synced(pipeline) == ()
    assert [found for found in compare(spark, pipeline, NAMES) if not found.equal] == []


@pytest.mark.nightly
@pytest.mark.parametrize("fault", ["lost", "dropped", "busy"])
def test_each_write_of_a_first_sync_fails_once(
    spark: SparkSession, database: Database, pipeline: Pipeline, store_proxy: StoreProxy, fault: Fault
) -> None:
    database.execute("SELECT pg_logical_emit_message(true, 'of', 'the test')")
    for at in count():
        begun = replace(
            pipeline,
            source=replace(pipeline.source, slot=f"{database.name}_{at}", publication=f"{database.name}_{at}"),
            lake=replace(pipeline.lake, path=f"{pipeline.lake.path}/{at}"),
        )
        strikes = Strikes(fault, at)
        with store_proxy.under(strikes):
            errors = synced(begun)
        database.execute(f"SELECT pg_drop_replication_slot('{begun.source.slot}')")
        if not strikes.struck:
            break
        where = f"write {at}, {strikes.struck[0]}"
        assert errors == (), where
        assert [found for found in compare(spark, begun, NAMES) if not found.equal] == [], where
    assert 8 <= at < _MOST_WRITES


@pytest.mark.parametrize("fault", ["lost", "refused", *map(at_night, ("busy", "dropped", "broken", "late"))])
def test_each_write_fails_once(
    spark: SparkSession, database: Database, followed: Pipeline, store_proxy: StoreProxy, fault: Fault
) -> None:
    assert 6 <= each_fails_once(spark, database, followed, store_proxy, fault) < _MOST_WRITES


@pytest.mark.nightly
@pytest.mark.parametrize("fault", ["dropped", "busy", "broken"])
def test_each_request_fails_once(
    spark: SparkSession, database: Database, followed: Pipeline, store_proxy: StoreProxy, fault: Fault
) -> None:
    assert each_fails_once(spark, database, followed, store_proxy, fault, reads=True) > 30


def each_fails_once(
    spark: SparkSession,
    database: Database,
    pipeline: Pipeline,
    proxy: StoreProxy,
    fault: Fault,
    *,
    reads: bool = False,
) -> int:
    """How many requests a sync makes: each of those of change log, tables and cuts has failed once."""
    for at in count():
        database.execute(
            "UPDATE busy SET n = n + 1",
            f"INSERT INTO other VALUES ({at + 2}, 0)",
            "SELECT pg_logical_emit_message(true, 'of', 'the test')",
        )
        strikes = Strikes(fault, at, most=_MOST_WRITES * _TRIES if fault == "refused" else 1, reads=reads)
        with proxy.under(strikes):
            errors = synced(pipeline)
        if not strikes.struck:
            return at
        where = f"request {at}, {strikes.struck[0]}: {[str(error) for error in errors]}"
        if fault == "refused":
            assert_said(errors, where)
        else:
            assert errors == (), where
        assert synced(pipeline) == ()
        assert [found for found in compare(spark, pipeline, NAMES) if not found.equal] == [], where
    raise AssertionError


# a commit of the change log, one of a table; by night a data file too: Arrow takes a minute to give up
@pytest.mark.parametrize("at", [1, 3, at_night(0)])
def test_a_storm_costs_time(
    spark: SparkSession, database: Database, followed: Pipeline, store_proxy: StoreProxy, at: int
) -> None:
    database.execute("UPDATE busy SET n = n + 1", f"INSERT INTO other VALUES ({at + 2}, 0)")
    storm = Strikes("busy", at, most=_TRIES + 1)
    with store_proxy.under(storm):
        assert synced(followed) == ()
    assert len(storm.struck) > _TRIES, "its client was to give up"
    assert [found for found in compare(spark, followed, NAMES) if not found.equal] == []


def assert_said(errors: tuple[CdcError, ...], where: str) -> None:
    assert errors, where
    for error in errors:
        assert isinstance(error, LakeError), where
        assert error.hint.startswith("check the credentials of the lake's storage"), where
        assert "\n" not in str(error), where
        assert SECRET_KEY not in str(error), where
