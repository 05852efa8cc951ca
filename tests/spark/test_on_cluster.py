"""A standalone cluster: executors are processes of their own that have nothing of ours, and some of them die."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from spark_jobs.configuration import MergeEngine, SparkOptions
from tests.fixtures.servers import Database
from tests.fixtures.spark_connect import connect_server
from tests.fixtures.standalone_cluster import StandaloneCluster, standalone_cluster
from tests.fixtures.waiting import wait_until
from tests.spark.cluster_order import cluster_options, order_file

pytestmark = [pytest.mark.spark, pytest.mark.postgres]


@pytest.mark.parametrize("dies", ["nobody", pytest.param("some", marks=pytest.mark.nightly)])
def test_both_engines_end_equal_and_ten_rows_take_few_tasks(
    database: Database, jars_folder: Path, without_our_package: Path, tmp_path: Path, dies: str
) -> None:
    with standalone_cluster(tmp_path, pythonpath=str(without_our_package)) as cluster:
        much: tuple[MergeEngine, ...] = ("spark",) if dies == "nobody" else ("spark", "auto")
        order = order_file(database, cluster_options(cluster.url, jars_folder, tmp_path), tmp_path, much)
        command = [sys.executable, "-m", "tests.spark.on_cluster", str(order)]
        driver = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        if dies == "some":
            threading.Thread(target=_kill_some, args=(cluster, tmp_path), daemon=True).start()
        said, _ = driver.communicate(timeout=900)
    assert driver.returncode == 0
    tasks = json.loads(said)
    assert tasks["auto"] == 0, "this process writes little changes"
    assert 0 < tasks["spark"] <= 20


@pytest.mark.nightly
def test_by_a_spark_connect_server(
    database: Database, jars_folder: Path, without_our_package: Path, tmp_path: Path
) -> None:
    """The server is the driver; this process has no JVM."""
    with standalone_cluster(tmp_path, pythonpath=str(without_our_package)) as cluster:
        options = cluster_options(cluster.url, jars_folder, tmp_path)
        with connect_server(tmp_path, jars_folder, pythonpath=str(without_our_package), on=options) as server:
            order = order_file(database, SparkOptions(remote=server.url), tmp_path, ("spark",))
            command = [sys.executable, "-m", "tests.spark.on_cluster", str(order)]
            client = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=900, check=True)
    assert 0 < json.loads(client.stdout)["spark"] <= 20


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_ten_million_rows_and_nine_hundred_thousand_changes_in_little_memory(
    database: Database, jars_folder: Path, without_our_package: Path, tmp_path: Path
) -> None:
    """In two executors of 768 MiB; the driver's process holds none of the rows."""
    with standalone_cluster(tmp_path, pythonpath=str(without_our_package)) as cluster:
        options = cluster_options(cluster.url, jars_folder, tmp_path)
        order = order_file(database, options, tmp_path, ("spark",), rows=10_000_000, width=20)
        command = [sys.executable, "-m", "tests.spark.on_cluster", str(order)]
        driver = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=3500, check=True)
    assert json.loads(driver.stdout)["peak"] < 600


def _kill_some(cluster: StandaloneCluster, folder: Path) -> None:
    """An executor while it reads the snapshot, and a worker with its executor while the changes are applied."""
    wait_until(lambda: len(cluster.executors()) == 2, "the executors")
    cluster.kill_an_executor()
    wait_until(lambda: bool([*folder.glob("lake/auto/tables/public/many/_delta_log/*.json")]), "the second snapshot")
    cluster.kill_a_worker()
