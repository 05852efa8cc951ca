"""Spark on a real S3 server: everything is equal afterwards, and of two drivers nobody loses a commit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.configuration import MergeEngine
from spark_jobs.spark.delta_jars import fill_folder
from tests.at_night import at_night
from tests.cli.command import configured
from tests.fixtures.s3_server import S3Server
from tests.fixtures.servers import Database

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

JARS = Path(__file__).parents[2] / ".cache" / "jars-s3"
APPENDS = 12


@pytest.fixture(scope="module")
def jars() -> Path:
    fill_folder(JARS, "s3")
    return JARS


def _configuration(
    folder: Path, database: Database, s3: S3Server, jars: Path, engine: MergeEngine = "spark", lake: str = ""
) -> tuple[Path, dict[str, str]]:
    command = configured(
        folder,
        database.dsn,
        database.name,
        ['public."my table"', "public.note", {"name": "public.versions", "mode": "history"}],
        lake={"path": f"s3://{s3.bucket}/{lake or database.name}", "storage": s3.storage},
        merge={"engine": engine},
        spark={"jars": str(jars), "master": "local[2]"},
    )
    return command.configuration, {**os.environ, **command.environment, **s3.environment}


def _started(programs: str, configuration: tuple[Path, dict[str, str]], *arguments: int) -> subprocess.Popen[str]:
    file, environment = configuration
    command = [sys.executable, "-m", "tests.spark.on_s3", programs, str(file), *map(str, arguments)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def _answer(process: subprocess.Popen[str]) -> Any:
    said, _ = process.communicate(timeout=500)
    assert process.returncode == 0
    return json.loads(said)


@pytest.mark.parametrize("engine", ["spark", at_night("auto")])
def test_a_lake_is_followed_and_verified(
    database: Database, s3_server: S3Server, tmp_path: Path, jars: Path, engine: MergeEngine
) -> None:
    database.execute(
        'CREATE TABLE "my table" (id int PRIMARY KEY, v text, tags text[])',
        "INSERT INTO \"my table\" SELECT g, 'v' || g, ARRAY['a', g::text] FROM generate_series(1, 30) g",
        "CREATE TABLE note (a int, b text)",
        "ALTER TABLE note REPLICA IDENTITY FULL",
        "INSERT INTO note VALUES (1, 'x'), (1, 'x'), (2, NULL)",
        "CREATE TABLE versions (id int PRIMARY KEY, n int)",
        "INSERT INTO versions SELECT g, g FROM generate_series(1, 10) g",
    )
    configuration = _configuration(tmp_path, database, s3_server, jars, engine)
    [followed, written] = _answer(_started("follow,write_one_version_twice", configuration))
    assert followed["errors"] == followed["problems"] == []
    assert followed["snapshots"] == [3, 0, 0]
    assert "spark" in followed["engines"]
    assert written == ["written", "written", "FileAlreadyExistsException", "written"], (
        "the second is the first one, again"
    )


@pytest.mark.nightly
def test_two_drivers_that_write_one_table_lose_nothing(
    database: Database, s3_server: S3Server, tmp_path: Path, jars: Path
) -> None:
    configuration = _configuration(tmp_path, database, s3_server, jars)
    assert _answer(_started("append", configuration, 0, 1)) == [1]
    writers = [_started("append", configuration, first, APPENDS) for first in (100, 200)]
    assert [_answer(writer) for writer in writers] == [[APPENDS], [APPENDS]]
    assert _answer(_started("count", configuration)) == [1 + 2 * APPENDS]
