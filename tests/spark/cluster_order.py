"""What a driver on a cluster is to do, in a file for ``tests.spark.on_cluster``, and the tables at the source."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

from spark_jobs.configuration import MergeEngine, SparkOptions
from spark_jobs.spark.session_conf import INTERPRETED
from tests.fixtures.servers import Database
from tests.spark.on_cluster import Order


def cluster_options(master: str, jars: Path, folder: Path, **more: str) -> SparkOptions:
    """Those of a driver on this machine, whose events are in ``folder``. ``more``: further settings of Spark."""
    events = folder / "events"
    events.mkdir()
    config = {
        **INTERPRETED,
        "spark.pyspark.python": sys.executable,
        "spark.executor.memory": "768m",
        "spark.executor.cores": "1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": str(events),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        **more,
    }
    return SparkOptions(master=master, jars=str(jars), config=tuple(config.items()))


def order_file(
    database: Database,
    options: SparkOptions,
    folder: Path,
    much: tuple[MergeEngine, ...],
    *,
    rows: int = 60_000,
    width: int = 200,
) -> Path:
    """``rows``: of the table of whose first 1.5 million three in five change; each is of ``width`` bytes and a few."""
    database.execute(
        "CREATE TABLE few (id int PRIMARY KEY, v text)",
        "INSERT INTO few SELECT g, 'v' || g FROM generate_series(1, 100) g",
        "CREATE TABLE many (id int PRIMARY KEY, v text)",
        f"INSERT INTO many SELECT g, md5(g::text) || repeat('x', {width}) FROM generate_series(1, {rows}) g",
    )
    (folder / "order").write_bytes(pickle.dumps(Order(database, options, folder / "lake", folder / "events", much)))
    return folder / "order"
