"""An object store that fails now and then: its answer is lost, or it refuses a request. Each write of a sync meets it
once, and afterwards source and lake are equal."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest
from pyarrow import fs

from spark_jobs.configuration import Lake, Pipeline
from spark_jobs.errors import CdcError, LakeError
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.sync import sync
from spark_jobs.verify.row_compare import compare
from tests.at_night import at_night
from tests.fixtures.no_spark import no_spark
from tests.fixtures.object_store import BUCKET, SECRET_KEY, ObjectStore
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database

if TYPE_CHECKING:
    from http.server import BaseHTTPRequestHandler

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

Fault = Literal["lost", "busy", "storm", "refused"]
NAMES = (QualifiedName("public", "busy"), QualifiedName("public", "other"))
_MOST_WRITES = 30  # of a sync; it makes eight
_TRIES = 11  # of object_store, the first one included


@dataclass
class Faults:
    """What the store does at the write ``at`` of a sync, counted from 0, or never for -1.

    ``lost``: it does what it is asked and says nothing; ``busy``: it refuses this one request; ``storm``: this one and
    so many after it that its clients give up; ``refused``: this one and all after it.
    """

    kind: Fault = "lost"
    at: int = -1
    seen: int = 0
    struck: list[str] = field(default_factory=list)

    def begin(self, at: int) -> None:
        self.at, self.seen = at, 0
        self.struck.clear()

    def serve(self, handler: BaseHTTPRequestHandler, run: Callable[[], None]) -> None:
        if handler.command not in ("PUT", "POST") or not self._strikes():
            return run()
        self.struck.append(handler.path)
        handler.close_connection = True
        if self.kind == "lost":
            answer, handler.wfile = handler.wfile, io.BytesIO()
            run()
            handler.wfile = answer
            return None
        handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        status = b"403 Forbidden" if self.kind == "refused" else b"503 Slow Down"
        handler.wfile.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        return None

    def _strikes(self) -> bool:
        number, self.seen = self.seen, self.seen + 1
        most = {"refused": _MOST_WRITES * _TRIES, "storm": _TRIES + 1}.get(self.kind, 1)
        return 0 <= self.at <= number and len(self.struck) < most


@pytest.fixture
def faults(object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> Faults:
    from moto.moto_server.werkzeug_app import MotoRequestHandler

    faults, run = Faults(), MotoRequestHandler.run_wsgi
    monkeypatch.setattr(MotoRequestHandler, "run_wsgi", lambda handler: faults.serve(handler, lambda: run(handler)))
    return faults


@pytest.fixture
def pipeline(spark: SparkSession, database: Database, tmp_path: Path, object_store: ObjectStore) -> Pipeline:
    """Both tables have their snapshots, and are followed without Spark, which has no connector for this store."""
    for name in NAMES:
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, n int)", f"INSERT INTO {name} VALUES (1, 0)")
    local = pipeline_of(database, tmp_path / "lake", *map(str, NAMES))
    assert sync(local, lambda: spark).errors == ()
    moved = f"{BUCKET}/{database.name}"
    fs.copy_files(local.lake.path, moved, destination_filesystem=object_store.filesystem())
    return replace(local, lake=Lake(f"s3a://{moved}"))


def synced(pipeline: Pipeline) -> tuple[CdcError, ...]:
    try:
        return sync(pipeline, no_spark).errors
    except CdcError as error:
        return (error,)


@pytest.mark.parametrize("kind", ["lost", "busy", "refused"])
def test_each_write_fails_once(
    spark: SparkSession, database: Database, pipeline: Pipeline, faults: Faults, kind: Fault
) -> None:
    faults.kind = kind
    for at in range(_MOST_WRITES):
        database.execute("UPDATE busy SET n = n + 1", f"INSERT INTO other VALUES ({at + 2}, 0)")
        faults.begin(at)
        errors = synced(pipeline)
        if not faults.struck:
            break
        where = f"write {at}, {faults.struck[0]}: {[str(error) for error in errors]}"
        if kind == "refused":
            assert_said(errors, where)
        else:
            assert errors == (), where
        faults.begin(-1)
        assert synced(pipeline) == ()
        assert [found for found in compare(spark, pipeline, NAMES) if not found.equal] == [], where
    assert 6 <= at < _MOST_WRITES - 1, "the writes of log, tables and cuts were each to fail"


# a commit of the change log, one of a table; by night a data file too: Arrow takes a minute to give up
@pytest.mark.parametrize("at", [1, 3, at_night(0)])
def test_a_storm_costs_time(
    spark: SparkSession, database: Database, pipeline: Pipeline, faults: Faults, at: int
) -> None:
    faults.kind = "storm"
    database.execute("UPDATE busy SET n = n + 1", f"INSERT INTO other VALUES ({at + 2}, 0)")
    faults.begin(at)
    assert synced(pipeline) == ()
    assert len(faults.struck) > _TRIES, "its client was to give up"
    assert [found for found in compare(spark, pipeline, NAMES) if not found.equal] == []


def assert_said(errors: tuple[CdcError, ...], where: str) -> None:
    assert errors, where
    for error in errors:
        assert isinstance(error, LakeError), where
        assert error.hint.startswith("check the credentials of the lake's storage"), where
        assert "\n" not in str(error), where
        assert SECRET_KEY not in str(error), where
