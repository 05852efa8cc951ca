"""Executors that read a snapshot run the command for the password themselves; what they print is nowhere."""

from __future__ import annotations

import sys
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pydantic import SecretStr

from spark_jobs.postgres.command_dsn import CommandDsn
from spark_jobs.postgres.password_command import PasswordCommand
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.sync import sync
from tests.documented_grants import TABLES, documented_role, without_password
from tests.fixtures.pipelines import pipeline_of
from tests.spark.followed_pipeline import Followed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.fixtures.servers import Database

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

# leaves the number of the process that ran it
PROGRAM = "import os, sys; open(sys.argv[1], 'a').write(f'{os.getppid()} '); print(open(sys.argv[2]).read())"


@pytest.mark.usefixtures("read_by_executors")
def test_executors_run_the_command(database: Database, spark: SparkSession, tmp_path: Path) -> None:
    password = f"canary{uuid.uuid4().hex}"
    (tmp_path / "password").write_text(password)
    ran = tmp_path / "ran"
    database.execute(
        *(f"CREATE TABLE {table} (id int PRIMARY KEY)" for table in TABLES),
        "INSERT INTO items SELECT generate_series(1, 9)",
    )
    with documented_role(database, password) as given:
        command = PasswordCommand([sys.executable, "-c", PROGRAM, str(ran), str(tmp_path / "password")])
        dsn = CommandDsn(SecretStr(without_password(given)), command)
        pipeline = pipeline_of(database, tmp_path / "lake", "items", engine="spark")
        pipeline = replace(pipeline, source=replace(pipeline.source, dsn=dsn))
        items = Followed(spark, database, pipeline, (QualifiedName("public", "items"),))
        assert sync(pipeline, lambda: spark).errors == ()
        assert len(set(ran.read_text().split())) > 1, "by this process, and by one of an executor"
        items.assert_equal()
