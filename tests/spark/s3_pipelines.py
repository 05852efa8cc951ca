"""A pipeline whose lake is in an object store, for the command and for programs of ``on_s3``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spark_jobs.configuration import MergeEngine
from spark_jobs.spark.delta_jars import fill_folder
from spark_jobs.spark.session_conf import INTERPRETED
from tests.cli.command import Command, configured
from tests.fixtures.s3_server import S3Server
from tests.fixtures.servers import Database

_CACHE = Path(__file__).parents[2] / ".cache"
_SECONDS = 1500
HEALTHY = ["lake.path through Spark: ok", "commits of Spark: ok"]  # says the doctor
TABLES: list[str | dict[str, str]] = [
    'public."my table"',
    "public.note",
    "public.plain",
    {"name": "public.versions", "mode": "history"},
]


def make_tables(database: Database) -> None:
    database.execute(
        'CREATE TABLE "my table" (id int PRIMARY KEY, v text, tags text[])',
        "INSERT INTO \"my table\" SELECT g, 'v' || g, ARRAY['a', g::text] FROM generate_series(1, 30) g",
        "CREATE TABLE note (a int, b text)",
        "ALTER TABLE note REPLICA IDENTITY FULL",
        "INSERT INTO note VALUES (1, 'x'), (1, 'x'), (2, NULL)",
        "CREATE TABLE versions (id int PRIMARY KEY, n int)",
        "INSERT INTO versions SELECT g, g FROM generate_series(1, 10) g",
        "CREATE TABLE plain (id int PRIMARY KEY, n int)",
        "INSERT INTO plain VALUES (1, 0)",
    )


def assert_followed(followed: dict[str, Any], engine: MergeEngine, tables: int = len(TABLES)) -> None:
    assert followed["errors"] == followed["problems"] == []
    assert followed["snapshots"] == [tables, 0, 0]
    assert followed["engines"] == (["deltalake", "spark"] if engine == "auto" else ["spark"])


def on_s3(
    folder: Path,
    database: Database,
    s3: S3Server,
    tables: Sequence[str | Mapping[str, Any]],
    engine: MergeEngine = "spark",
    config: Mapping[str, str] | None = None,
) -> Command:
    """Its configuration is in ``folder``; ``config`` is that of Spark, beside what saves its few rows CPU time."""
    lake = {"path": f"s3://{s3.bucket}/{database.name}", "storage": s3.storage}
    return in_store("s3", folder, database, lake, s3.environment, tables, engine, config)


def in_store(
    store: str,
    folder: Path,
    database: Database,
    lake: Mapping[str, Any],
    environment: Mapping[str, str],
    tables: Sequence[str | Mapping[str, Any]],
    engine: MergeEngine = "spark",
    config: Mapping[str, str] | None = None,
) -> Command:
    jars = _CACHE / f"jars-{store}"
    fill_folder(jars, store)
    folder.mkdir(exist_ok=True)
    spark = {"jars": str(jars), "master": "local[2]", "config": {**INTERPRETED, **(config or {})}}
    made = configured(
        folder, database.dsn, database.name, tables, lake=dict(lake), merge={"engine": engine}, spark=spark
    )
    return Command(made.configuration, {**made.environment, **environment})


def started(command: Command, *programs: str) -> subprocess.Popen[str]:
    """Programs of ``on_s3``, each with its arguments after it, with the configuration of ``command``."""
    called = [sys.executable, "-m", "tests.spark.on_s3", str(command.configuration), *programs]
    return subprocess.Popen(called, env=os.environ | command.environment, stdout=subprocess.PIPE, text=True)


def answer(process: subprocess.Popen[str]) -> Any:
    """What each of them returns."""
    output, _ = process.communicate(timeout=_SECONDS)
    assert process.returncode == 0
    return json.loads(output)
