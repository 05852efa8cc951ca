"""Tables get names in a Hive metastore: a real one, embedded in a Spark session of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_jobs.spark.session_conf import INTERPRETED
from tests.cli.command import configured
from tests.fixtures.servers import Database

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

HIVE = {
    "spark.sql.catalogImplementation": "hive",
    "spark.hadoop.javax.jdo.option.ConnectionURL": "jdbc:derby:;databaseName={folder}/metastore;create=true",
    "spark.sql.warehouse.dir": "{folder}/warehouse",
    "spark.driver.extraJavaOptions": "-Dderby.system.home={folder}",
}


def test_names_appear_follow_a_rename_and_survive_recover(
    database: Database, jars_folder: Path, tmp_path: Path
) -> None:
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, v text)",
        "INSERT INTO orders VALUES (1, 'a')",
        'CREATE TABLE "odd table" (id int PRIMARY KEY)',
        "CREATE TABLE taken (id int PRIMARY KEY)",
    )
    config = INTERPRETED | {name: value.format(folder=tmp_path) for name, value in HIVE.items()}
    command = configured(
        tmp_path,
        database.dsn,
        database.name,
        ["public.*"],
        lake={"path": str(tmp_path / "lake"), "catalog": "shop_{schema}.{table}"},
        merge={"engine": "spark"},
        spark={"jars": str(jars_folder), "master": "local[2]", "config": config},
    )
    program = [sys.executable, "-m", "tests.spark.registered", str(command.configuration), database.dsn]
    environment = {**os.environ, **command.environment}
    said = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr[-3000:]
    found = json.loads(said.stdout.splitlines()[-1])
    taken = [["somebody else's"]]
    assert found["first"] == {"orders": [[1, "a"]], "taken": taken}
    assert found["renamed"] == {"orders": [[1, "a"]], "purchases": [[1, "a"], [2, "b"]], "taken": taken}
    assert found["recovered"]["purchases"] == [[1, "a", 7], [2, "b", 7], [3, "c", 7]]
    assert 'public."odd table" could not be registered as shop_public.odd table' in said.stderr
    assert "public.taken could not be registered as shop_public.taken: that is the table at" in said.stderr
