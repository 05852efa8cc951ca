"""A standalone cluster: executors are processes of their own that have nothing of ours, and some of them die."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from spark_jobs.configuration import MergeEngine, SparkOptions
from tests.fixtures.servers import Database
from tests.fixtures.standalone_cluster import StandaloneCluster, standalone_cluster
from tests.fixtures.waiting import wait_until
from tests.spark.on_cluster import Order

pytestmark = [pytest.mark.spark, pytest.mark.postgres]


def _order(
    database: Database, cluster: StandaloneCluster, jars: Path, folder: Path, much: tuple[MergeEngine, ...]
) -> Path:
    events = folder / "events"
    events.mkdir()
    config = {
        "spark.pyspark.python": sys.executable,
        "spark.executor.memory": "768m",
        "spark.executor.cores": "1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": str(events),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }
    options = SparkOptions(master=cluster.url, jars=str(jars), config=tuple(config.items()))
    (folder / "order").write_bytes(pickle.dumps(Order(database, options, folder / "lake", events, much)))
    return folder / "order"


@pytest.mark.parametrize("dies", ["nobody", pytest.param("some", marks=pytest.mark.nightly)])
def test_both_engines_end_equal_and_ten_rows_take_few_tasks(
    database: Database, jars_folder: Path, without_our_package: Path, tmp_path: Path, dies: str
) -> None:
    database.execute(
        "CREATE TABLE few (id int PRIMARY KEY, v text)",
        "INSERT INTO few SELECT g, 'v' || g FROM generate_series(1, 100) g",
        "CREATE TABLE many (id int PRIMARY KEY, v text)",
        "INSERT INTO many SELECT g, md5(g::text) || repeat('x', 200) FROM generate_series(1, 60000) g",
    )
    with standalone_cluster(tmp_path, pythonpath=str(without_our_package)) as cluster:
        much: tuple[MergeEngine, ...] = ("spark",) if dies == "nobody" else ("spark", "auto")
        order = _order(database, cluster, jars_folder, tmp_path, much)
        command = [sys.executable, "-m", "tests.spark.on_cluster", str(order)]
        driver = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        if dies == "some":
            threading.Thread(target=_kill_some, args=(cluster, tmp_path), daemon=True).start()
        said, _ = driver.communicate(timeout=900)
    assert driver.returncode == 0
    tasks = json.loads(said)
    assert tasks["auto"] == 0, "this process writes little changes"
    assert 0 < tasks["spark"] <= 20


def _kill_some(cluster: StandaloneCluster, folder: Path) -> None:
    """An executor while it reads the snapshot, and a worker with its executor while the changes are applied."""
    wait_until(lambda: len(cluster.executors()) == 2, "the executors")
    cluster.kill_an_executor()
    wait_until(lambda: bool([*folder.glob("lake/auto/tables/public/many/_delta_log/*.json")]), "the second snapshot")
    cluster.kill_a_worker()
