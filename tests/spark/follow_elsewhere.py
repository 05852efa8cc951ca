"""A snapshot and applies through another kind of Spark, in a process of its own.

``python -m tests.spark.follow_elsewhere OPTIONS DATABASE LAKE``: pickled SparkOptions, pickled Database, a folder.
"""

from __future__ import annotations

import pickle
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from spark_jobs.configuration import SparkOptions
from spark_jobs.snapshot import table_read
from spark_jobs.spark.session import spark_session
from tests.fixtures.forked_programs import run_program
from tests.fixtures.servers import Database
from tests.spark.followed_pipeline import Followed
from tests.spark.scenarios import SCENARIOS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# each written in a way of its own: an overwrite and a MERGE on the driver, then a MERGE and an append by executors, all
# in one partition, and by key
_ON_DRIVER = ("truncated in the middle", "mixed changes, values kept")
_BY_EXECUTORS = ("rows that move with their documents, and swap", "inserts alone")


def follow_elsewhere(
    options: SparkOptions, database: Database, folder: Path, program: str = "tests.spark.follow_elsewhere"
) -> str:
    """Follow ``item`` of ``database`` into ``folder``/lake; the path of its Delta table. Or what another ``program`` of
    the same arguments follows."""
    (folder / "options").write_bytes(pickle.dumps(options))
    (folder / "database").write_bytes(pickle.dumps(database))
    arguments = [str(folder / "options"), str(folder / "database"), str(folder / "lake")]
    answer = run_program(program, *arguments)
    assert answer.stdout.splitlines()[-1:] == ["lake equals source"], answer.stderr
    return str(folder / "lake" / "tables" / "public" / "item")


def follow_item(spark: SparkSession, options: SparkOptions, database: Database, lake: Path) -> str:
    """Follow it through this Spark; the path of its Delta table."""
    followed = Followed.start(spark, database, lake, "item", options=options)
    (snapshot,) = followed.snapshot()
    assert snapshot.error is None, snapshot.error
    followed.assert_equal()
    for scenario in (*_ON_DRIVER, *_BY_EXECUTORS):
        database.execute(*SCENARIOS[scenario])
        (applied,) = (followed if scenario in _ON_DRIVER else replace(followed, on_driver_bytes=0)).sync()
        assert applied.error is None, (scenario, applied.error)
        followed.assert_equal()
    (again,) = followed.apply()
    assert again.outcome == "already applied"
    return followed.pipeline.lake.table(followed.names[0])


def main(options: str, database_file: str, lake: str) -> None:
    table_read._SMALL_BYTES = -1  # executors read every table
    kind = pickle.loads(Path(options).read_bytes())  # noqa: S301 - our own file
    spark = spark_session(kind)
    follow_item(spark, kind, pickle.loads(Path(database_file).read_bytes()), Path(lake))  # noqa: S301
    spark.stop()
    sys.stdout.write("lake equals source\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
