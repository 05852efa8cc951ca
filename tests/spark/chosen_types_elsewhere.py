"""A table with chosen types through another kind of Spark, in a process of its own: see ``follow_elsewhere``."""

from __future__ import annotations

import pickle
import sys
from dataclasses import replace
from pathlib import Path

from spark_jobs.spark.session import spark_session
from spark_jobs.sync import sync
from tests.spark.chosen_types import BEYOND, CHANGES, assert_equal, start


def main(options: str, database_file: str, lake: str) -> None:
    spark = spark_session(pickle.loads(Path(options).read_bytes()))  # noqa: S301 - our own file
    followed = start(spark, pickle.loads(Path(database_file).read_bytes()), Path(lake))  # noqa: S301
    report = sync(followed.pipeline, lambda: spark)
    assert report.errors == (), report.errors
    assert_equal(followed)
    for changes, on_driver_bytes in ((CHANGES, followed.on_driver_bytes), (BEYOND, 0)):
        followed.database.execute(*changes)
        (applied,) = replace(followed, on_driver_bytes=on_driver_bytes).sync()
        assert applied.error is None, applied.error
        assert_equal(followed)
    spark.stop()
    sys.stdout.write("lake equals source\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
