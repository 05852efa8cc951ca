"""The Spark session of one command: started on first use, stopped at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from spark_jobs.configuration import SparkOptions
from spark_jobs.spark.provider import LazySession, SparkProvider, one_at_a_time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def renewable_session(options: SparkOptions) -> Iterator[SparkProvider]:
    """Like ``lazy_session``, for a long-running process: a session that has died is replaced when it is next
    used."""
    with _session_of(options, _forgotten_if_dead) as session:
        yield one_at_a_time(partial(session, False))


@contextmanager
def lazy_session(options: SparkOptions, *, may_be_brief: bool = False) -> Iterator[SparkProvider]:
    """A command that finds nothing to write starts no JVM. ``may_be_brief``: it ends after one sync or apply, so that
    its JVM need not become fast if that has little to do (see ``spark_session``)."""
    with _session_of(options, lambda _: False) as session:
        yield LazySession(session) if may_be_brief else one_at_a_time(partial(session, False))


@contextmanager
def _session_of(
    options: SparkOptions, is_over: Callable[[SparkSession], bool]
) -> Iterator[Callable[[bool], SparkSession]]:
    """A function that starts the session, as a brief one or not, and returns it from then on. ``is_over`` says of a
    session that was started earlier whether it must be replaced."""
    started: list[SparkSession] = []

    def session(brief: bool) -> SparkSession:
        if started and is_over(started[0]):
            started.clear()
        if not started:
            from spark_jobs.spark.session import spark_session

            started.append(spark_session(options, brief=brief))
        return started[0]

    try:
        yield session
    finally:
        for spark in started:
            from spark_jobs.spark.own_jvm import end_session

            end_session(spark)


def _forgotten_if_dead(spark: SparkSession) -> bool:
    """Whether the JVM has died. If so, pyspark is made to forget the session, which it would otherwise return again."""
    from spark_jobs.spark.own_jvm import forget_session, has_ended
    from spark_jobs.spark.session import is_connect

    dead = has_ended() or (is_connect(spark) and _is_closed(spark))
    if dead:
        forget_session()
    return dead


def _is_closed(spark: SparkSession) -> bool:
    """Whether the Connect server no longer has the session: it was restarted, or the session was idle for too long."""
    try:
        spark.range(0).collect()
    except Exception:  # noqa: BLE001 - whatever the reason, a new session reports it better
        return True
    return False
