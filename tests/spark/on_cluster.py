"""What a driver does on a standalone cluster, in a process of its own.

``python -m tests.spark.on_cluster ORDER`` prints as JSON, by engine, how many tasks a sync of ten changed rows took,
and ``peak``, the most memory that this process held, in MiB.
"""

from __future__ import annotations

import json
import pickle
import resource
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import SecretStr

from spark_jobs.configuration import Lake, MergeEngine, Pipeline, SnapshotOptions, Source, SparkOptions, Table
from spark_jobs.options.write_limits import WriteLimits
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.spark.session import spark_session
from spark_jobs.sync import sync
from spark_jobs.verify.verify import verify
from tests.fixtures.servers import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = (QualifiedName("public", "few"), QualifiedName("public", "many"))
TEN_ROWS = (
    "UPDATE few SET v = v || '!' WHERE id <= 7",
    "DELETE FROM few WHERE id = 9",
    "INSERT INTO few VALUES (201, 'new'), (202, 'new')",
)
# of the first 1.5 million rows
MUCH = (
    "UPDATE many SET v = v || '!' WHERE id % 2 = 0 AND id <= 1500000",
    "DELETE FROM many WHERE id % 11 = 0 AND id <= 1500000",
    "INSERT INTO many SELECT g, 'new ' || g FROM generate_series(20000001, 20020000) g",
)
BY_EXECUTORS = WriteLimits(on_driver_bytes=0)
IN_CHUNKS = SnapshotOptions(chunk_bytes=8 << 20)


@dataclass(frozen=True)
class Order:
    """``events``: Spark's folder for event logs. ``much``: the engines with which much is changed, too."""

    database: Database
    options: SparkOptions
    lake: Path
    events: Path
    much: tuple[MergeEngine, ...]


def followed(order: Order, spark: SparkSession) -> dict[str, tuple[float, float]]:
    """By engine, when the sync of ten changed rows began and ended."""
    database = order.database
    pipelines: dict[MergeEngine, Pipeline] = {}
    when: dict[str, tuple[float, float]] = {}
    engines: tuple[MergeEngine, ...] = ("spark", "auto")
    for engine in engines:
        source = Source(SecretStr(database.dsn), f"{database.name}_{engine}", f"{database.name}_{engine}")
        tables = tuple(map(Table, NAMES if engine in order.much else NAMES[:1]))
        made = Pipeline(engine, source, Lake(str(order.lake / engine)), tables=tables)
        pipelines[engine] = replace(made, merge_engine=engine, spark=order.options, snapshot=IN_CHUNKS)
        _synced(pipelines[engine], spark)
    database.execute(*TEN_ROWS)
    for engine, pipeline in pipelines.items():
        began = time.time()
        _synced(pipeline, spark)
        when[engine] = (began, time.time())
    database.execute(*MUCH)
    for engine, pipeline in pipelines.items():
        if engine in order.much:
            _synced(replace(pipeline, writes=BY_EXECUTORS), spark)
        assert verify(pipeline, lambda: spark).problems == ()
    return when


def _synced(pipeline: Pipeline, spark: SparkSession) -> None:
    report = sync(pipeline, lambda: spark)
    assert report.errors == (), report.errors


def tasks_between(events: Path, began: float, ended: float) -> int:
    """How many tasks were launched in that time."""
    (log,) = events.iterdir()
    entries = (json.loads(line) for line in log.read_text().splitlines())
    launched = (
        event["Task Info"]["Launch Time"] / 1000 for event in entries if event["Event"] == "SparkListenerTaskEnd"
    )
    return sum(began <= at <= ended for at in launched)


def main(file: str) -> None:
    order = pickle.loads(Path(file).read_bytes())  # noqa: S301 - our own file
    spark = spark_session(order.options)
    when = followed(order, spark)
    spark.stop()
    tasks = {engine: tasks_between(order.events, *times) for engine, times in when.items()}
    json.dump({**tasks, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
