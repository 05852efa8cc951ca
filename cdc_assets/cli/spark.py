"""The Spark session of one command: started when first asked for, stopped at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from spark_jobs.configuration import SparkOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def renewable_session(options: SparkOptions) -> Iterator[Callable[[], SparkSession]]:
    """Like ``lazy_session``, for a process that goes on: a session that has died is replaced when it is next asked
    for."""
    started: list[SparkSession] = []

    def session() -> SparkSession:
        from spark_jobs.spark.own_jvm import forget_session, has_ended
        from spark_jobs.spark.session import is_connect, spark_session

        if started and (has_ended() or (is_connect(started[0]) and _is_closed(started[0]))):
            started.clear()
            forget_session()
        if not started:
            started.append(spark_session(options))
        return started[0]

    try:
        yield session
    finally:
        for spark in started:
            spark.stop()


def _is_closed(spark: SparkSession) -> bool:
    """Whether a Connect server has no such session any more: it was restarted, or the session was idle for too long."""
    try:
        spark.range(0).collect()
    except Exception:  # noqa: BLE001 - whatever it says, a new session says it better
        return True
    return False


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
