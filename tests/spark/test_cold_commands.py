"""What a command loads that has nothing to write, or writes without Spark: its start is most of what it costs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.apply.apply import apply
from spark_jobs.capture.capture import capture
from spark_jobs.configuration import Pipeline, Table, WindowLimits
from spark_jobs.options.write_limits import WriteLimits
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.spark.provider import LazySession
from spark_jobs.sync import sync
from tests.cli.command import configured
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

# each costs a fifth of a second or more
HEAVY = ("pandas", "pyspark", "py4j", "dagster")
_LITTLE = WriteLimits(little_bytes=8 << 20)
PROGRAM = """
import json, sys
from cdc_assets.cli import run
code = run(sys.argv[1:])
sys.stderr.write(json.dumps(sorted(sys.modules)))
sys.exit(code)
"""


def test_a_cold_command_loads_only_what_it_needs(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, n int)", "INSERT INTO t VALUES (1), (2), (3), (4)")
    assert sync(pipeline_of(database, tmp_path / "lake", "public.t"), lambda: spark).errors == ()
    command = configured(tmp_path, database.dsn, database.name, ["public.t"])

    def loaded(name: str, updates: int = 0) -> set[str]:
        """The modules of the process of ``postgres-cdc name``, which applies so many updates."""
        call = [sys.executable, "-c", PROGRAM, name, "--config", str(command.configuration), "--json"]
        environment = {**os.environ, **command.environment}
        done = subprocess.run(call, capture_output=True, text=True, env=environment, timeout=120, check=True)
        tables = json.loads(done.stdout)["tables"]
        assert sum(table.get("updates", 0) for table in tables) == updates
        return set(json.loads(done.stderr))

    database.execute("UPDATE t SET n = 0 WHERE id < 4")
    assert loaded("sync", updates=3).isdisjoint(HEAVY)
    assert loaded("sync").isdisjoint(HEAVY)
    assert loaded("status").isdisjoint(HEAVY)


def test_spark_is_told_whether_little_is_ahead(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    """A few changes of a small table are; a lot that the source has not sent yet is not, nor is a snapshot."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, n int)", "INSERT INTO t VALUES (1), (2), (3), (4)")
    told: list[bool] = []

    def start(has_little: bool) -> SparkSession:
        told.append(has_little)
        return spark

    def synced(*tables: str, windows: WindowLimits | None = None, limits: WriteLimits = _LITTLE) -> list[bool]:
        """What the session was told that a sync started, if it started one."""
        told.clear()
        pipeline = replace(_pipeline(database, tmp_path / "lake", *tables), writes=limits)
        assert sync(replace(pipeline, windows=windows or pipeline.windows), LazySession(start)).errors == ()
        return list(told)

    assert synced("public.t") == [False]
    assert synced("public.t") == []
    database.execute("UPDATE t SET n = 0 WHERE id < 4")
    assert synced("public.t") == [True]
    database.execute("CREATE TABLE u (id int PRIMARY KEY)", "UPDATE t SET n = 1 WHERE id < 4")
    assert synced("public.t", "public.u") == [False]

    message = "SELECT pg_logical_emit_message(true, 'none', repeat('x', 9 << 20))"
    database.execute("UPDATE t SET n = 2 WHERE id < 4", message)
    assert synced("public.t", windows=WindowLimits(max_bytes=1 << 20, max_per_run=1)) == [False]

    database.execute("UPDATE t SET n = 3 WHERE id < 4")
    pipeline = replace(_pipeline(database, tmp_path / "lake", "public.t"), writes=_LITTLE)
    capture(pipeline)
    database.execute(message)
    told.clear()
    apply(Run(pipeline, LazySession(start)), uncaptured=0)
    assert told == [True]

    database.execute("UPDATE t SET n = 4 WHERE id < 4")
    assert synced("public.t", limits=replace(_LITTLE, little_tables=0)) == [False]


def _pipeline(database: Database, lake: Path, *tables: str) -> Pipeline:
    """In a mode whose snapshots Spark writes, as it does all else."""
    pipeline = pipeline_of(database, lake, engine="spark")
    followed = tuple(Table(QualifiedName.parse(name), mode="history") for name in tables)
    return replace(pipeline, tables=followed)
