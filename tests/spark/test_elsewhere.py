"""The same snapshot and apply where executors are other processes, and where the client is not the driver."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.configuration import SparkOptions
from tests.fixtures.servers import Database
from tests.spark.follow_elsewhere import follow_elsewhere
from tests.spark.scenarios import make_item

pytestmark = [pytest.mark.spark, pytest.mark.postgres]


@pytest.fixture
def item(database: Database) -> Database:
    make_item(database)
    return database


@pytest.mark.nightly
def test_executors_in_processes_of_their_own(
    item: Database, jars_folder: Path, without_our_package: Path, tmp_path: Path
) -> None:
    config = (("spark.executorEnv.PYTHONPATH", str(without_our_package)),)
    options = SparkOptions(master="local-cluster[2,1,1024]", jars=str(jars_folder), config=config)
    follow_elsewhere(options, item, tmp_path)


@pytest.mark.nightly
def test_through_spark_connect(item: Database, connect_server: str, tmp_path: Path) -> None:
    follow_elsewhere(SparkOptions(remote=connect_server), item, tmp_path)


@pytest.mark.nightly
def test_partitions_that_come_and_go_through_spark_connect(
    database: Database, connect_server: str, tmp_path: Path
) -> None:
    follow_elsewhere(SparkOptions(remote=connect_server), database, tmp_path, "tests.spark.partitions_elsewhere")
