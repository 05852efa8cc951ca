"""Run as a program, in a process of its own: a snapshot and an apply through another kind of Spark.

``python -m tests.spark.follow_elsewhere OPTIONS DATABASE LAKE``: pickled SparkOptions, pickled Database, a folder.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

from spark_jobs.session import spark_session
from tests.spark.followed_pipeline import Followed


def main(options: str, database_file: str, lake: str) -> None:
    spark = spark_session(pickle.loads(Path(options).read_bytes()))  # noqa: S301 - our own file
    database = pickle.loads(Path(database_file).read_bytes())  # noqa: S301
    followed = Followed.start(spark, database, Path(lake), "item")
    (snapshot,) = followed.snapshot()
    assert snapshot.error is None, snapshot.error
    followed.assert_equal()
    database.execute(
        "UPDATE item SET name = 'changed' WHERE id % 5 = 0",  # keeps the TOASTed documents
        "UPDATE item SET id = -id WHERE id = 7",
        "DELETE FROM item WHERE id % 11 = 0",
    )
    (applied,) = followed.sync()
    assert applied.error is None, applied.error
    followed.assert_equal()
    (again,) = followed.apply()
    assert again.outcome == "already applied"
    spark.stop()
    sys.stdout.write("lake equals source\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
