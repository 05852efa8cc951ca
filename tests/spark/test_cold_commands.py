"""What a command loads that has nothing to write, or writes without Spark: its start is most of what it costs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.apply import little_ahead
from spark_jobs.apply.little_ahead import has_little_ahead
from spark_jobs.capture.capture import capture
from spark_jobs.sync import sync
from tests.cli.command import configured
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

# each costs a fifth of a second or more
HEAVY = ("pandas", "pyspark", "py4j", "dagster")
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


def test_what_is_little(
    spark: SparkSession, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few changes of a small table are; a lot that the source has not sent yet is not, nor is a snapshot."""
    monkeypatch.setattr(little_ahead, "_LITTLE_CHANGES", 8 << 20)
    database.execute("CREATE TABLE t (id int PRIMARY KEY, n int)", "INSERT INTO t VALUES (1), (2), (3), (4)")
    pipeline = pipeline_of(database, tmp_path / "lake", "public.t")
    assert not has_little_ahead(pipeline, captures=True)
    assert sync(pipeline, lambda: spark).errors == ()
    database.execute("UPDATE t SET n = 0 WHERE id < 4")
    capture(pipeline)
    assert has_little_ahead(pipeline, captures=True)

    database.execute("CREATE TABLE u (id int PRIMARY KEY)")
    another = pipeline_of(database, tmp_path / "lake", "public.t", "public.u")
    assert not has_little_ahead(another, captures=True)

    database.execute("SELECT pg_logical_emit_message(true, 'none', repeat('x', 9 << 20))")
    assert not has_little_ahead(pipeline, captures=True)
    assert has_little_ahead(pipeline, captures=False)
