"""The Spark session of one command: started when first asked for, stopped at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from spark_jobs.configuration import SparkOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def lazy_session(options: SparkOptions) -> Iterator[Callable[[], SparkSession]]:
    """A command that finds nothing to write never waits for a JVM."""
    started: list[SparkSession] = []

    def session() -> SparkSession:
        if not started:
            from spark_jobs.spark.session import spark_session

            started.append(spark_session(options))
        return started[0]

    try:
        yield session
    finally:
        for spark in started:
            spark.stop()
