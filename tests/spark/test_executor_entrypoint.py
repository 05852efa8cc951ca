"""The entrypoint of ``deploy/Dockerfile``'s image for Kubernetes starts an executor that runs tasks.

There is no Kubernetes here. The driver is that of a standalone cluster without workers, so it has no other executor.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from spark_jobs.spark.java import find_java
from tests.fixtures.free_port import free_port
from tests.fixtures.servers import Database
from tests.fixtures.standalone_cluster import standalone_cluster
from tests.fixtures.waiting import wait_until
from tests.spark.cluster_order import cluster_options, order_file

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.nightly]

ENTRYPOINT = Path(__file__).parents[2] / "deploy" / "kubernetes-entrypoint.sh"
# as a driver gives them to its executors
_OPENED = ("java.lang", "java.lang.invoke", "java.net", "java.nio", "java.util", "sun.nio.ch", "sun.util.calendar")
JAVA_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "--add-modules=jdk.incubator.vector",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
)


def test_an_executor_runs_all_tasks(
    database: Database, jars_folder: Path, without_our_package: Path, tmp_path: Path
) -> None:
    port = free_port()
    with standalone_cluster(tmp_path, workers=0) as cluster, ExitStack() as ends:
        options = cluster_options(cluster.url, jars_folder, tmp_path, **{"spark.driver.port": str(port)})
        order = order_file(database, options, tmp_path, much=("spark",))
        command = [sys.executable, "-m", "tests.spark.on_cluster", str(order)]
        driver = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        ends.callback(driver.kill)
        wait_until(lambda: bool([*(tmp_path / "events").iterdir()]), "the driver")
        executor = _started(port, str(without_our_package), tmp_path)
        ends.callback(executor.kill)
        said, _ = driver.communicate(timeout=900)
        executor.wait(timeout=60)  # it ends with its driver
    assert driver.returncode == 0
    assert json.loads(said)["spark"] > 0


def _started(port: int, pythonpath: str, folder: Path) -> subprocess.Popen[bytes]:
    """With the variables that Spark sets in a pod."""
    java, python = find_java().home / "bin", Path(sys.executable).parent
    variables = {
        "SPARK_DRIVER_URL": f"spark://CoarseGrainedScheduler@127.0.0.1:{port}",
        "SPARK_EXECUTOR_ID": "1",
        "SPARK_EXECUTOR_CORES": "1",
        "SPARK_EXECUTOR_MEMORY": "768m",
        "SPARK_APPLICATION_ID": "spark-application",
        "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
        "SPARK_EXECUTOR_POD_NAME": "executor-1",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        **{f"SPARK_JAVA_OPT_{number}": option for number, option in enumerate(JAVA_OPTIONS)},
    }
    path = {"PATH": f"{java}:{python}:{os.environ['PATH']}", "PYTHONPATH": pythonpath, "PYSPARK_PYTHON": sys.executable}
    work = folder / "executor"
    work.mkdir()
    with (folder / "executor.log").open("wb") as log:
        return subprocess.Popen(
            [str(ENTRYPOINT), "executor"], env={**os.environ, **path, **variables}, cwd=work, stdout=log, stderr=log
        )
