"""Run as a program, in a process of its own: a snapshot and applies through another kind of Spark.

``python -m tests.spark.follow_elsewhere OPTIONS DATABASE LAKE``: pickled SparkOptions, pickled Database, a folder.
"""

from __future__ import annotations

import pickle
import sys
from dataclasses import replace
from pathlib import Path

from spark_jobs.spark.session import spark_session
from tests.spark.followed_pipeline import Followed
from tests.spark.scenarios import SCENARIOS


def main(options: str, database_file: str, lake: str) -> None:
    spark = spark_session(pickle.loads(Path(options).read_bytes()))  # noqa: S301 - our own file
    database = pickle.loads(Path(database_file).read_bytes())  # noqa: S301
    followed = Followed.start(spark, database, Path(lake), "item")
    (snapshot,) = followed.snapshot()
    assert snapshot.error is None, snapshot.error
    followed.assert_equal()
    # one on the driver, then through executors: all in one partition, and by key
    for number, (scenario, statements) in enumerate(list(SCENARIOS.items())[:3]):
        database.execute(*statements)
        (applied,) = (replace(followed, on_driver_bytes=0) if number else followed).sync()
        assert applied.error is None, (scenario, applied.error)
        followed.assert_equal()
    (again,) = followed.apply()
    assert again.outcome == "already applied"
    spark.stop()
    sys.stdout.write("lake equals source\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
