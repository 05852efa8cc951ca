"""``doctor --spark`` starts a session, in which a table of the lake is written by both. What it finds on object stores:
``test_on_s3``, ``test_on_gcs``, ``test_on_abfss``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.command import configured
from tests.fixtures.s3_server import S3Server
from tests.fixtures.servers import Database
from tests.spark.s3_pipelines import answer, on_s3, started

pytestmark = [pytest.mark.spark, pytest.mark.postgres]


def test_the_command_leaves_nothing(database: Database, jars_folder: Path, tmp_path: Path) -> None:
    database.execute("CREATE TABLE item (id int PRIMARY KEY)")
    spark = {"jars": str(jars_folder), "master": "local[2]"}
    command = configured(tmp_path, database.dsn, database.name, ["public.item"], spark=spark)
    said = command("doctor", "--spark", "--json")
    assert said.exit_code == 0, said.stderr
    checks = {check["what"]: check["found"] for check in said.document["checks"]}
    assert checks["lake.path through Spark"] == f"{tmp_path}/lake is written and read"
    assert checks["commits of Spark"] == "5 of Spark's and 5 of ours at the same time: all are there"
    assert list((tmp_path / "lake").rglob("*")) == []


@pytest.mark.nightly
def test_a_session_whose_commits_are_not_conditional(database: Database, s3_server: S3Server, tmp_path: Path) -> None:
    deltas_own = {"spark.delta.logStore.s3.impl": "io.delta.storage.S3SingleDriverLogStore"}
    command = on_s3(tmp_path, database, s3_server, ["public.item"], config=deltas_own)
    [[written, commits]] = answer(started(command, "doctor"))
    assert written == "lake.path through Spark: ok"
    # a warning, or a commit that is lost indeed
    assert commits in ("commits of Spark: warn", "commits of Spark: fail")


def test_a_path_that_spark_cannot_write(database: Database, s3_server: S3Server, tmp_path: Path) -> None:
    command = on_s3(tmp_path, database, s3_server, ["public.item"])
    refused = replace(command, environment={**command.environment, "AWS_SECRET_ACCESS_KEY": "another"})
    [checks] = answer(started(refused, "doctor"))
    assert "lake.path through Spark: fail" in checks
