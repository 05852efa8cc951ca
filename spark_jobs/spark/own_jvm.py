"""The JVM that classic Spark keeps beside this process. Not for Spark Connect."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from spark_jobs.spark.class_archive import ClassArchive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WRITES_ARCHIVE_SECONDS = 120
# the attribute of a brief JVM's gateway: what the JVM writes when it ends
_ARCHIVE = "_archive_of_brief_jvm"


def has_ended() -> bool:
    """Whether this process had a JVM of its own, and Spark has stopped in it."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is None:
        return False
    try:
        return bool(context._jsc.sc().isStopped())
    except (Py4JError, OSError):  # nobody answers any more
        return True


def forget_session() -> None:
    """Forget a session whose JVM has ended, or that its server no longer knows, so that another can be started."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._active_spark_context = None
    SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = None


def remember_brief(gateway: Any, recorded: ClassArchive | None) -> None:
    """The JVM behind ``gateway`` is a brief one (see ``spark_session``); ``recorded``: what it writes when it ends."""
    setattr(gateway, _ARCHIVE, recorded)


def is_brief() -> bool:
    """Whether this process's JVM is a brief one. Answered without the JVM, which may have died."""
    return _brief_gateway() is not None


def end_session(spark: SparkSession, *, archive_seconds: float = _WRITES_ARCHIVE_SECONDS) -> None:
    """Stop ``spark``, and end the JVM of a brief one. If that JVM writes an archive of its classes, wait for it; if
    that takes longer than ``archive_seconds``, there is none. A JVM that has died is forgotten: its user has already
    raised an error, and another one here would hide it."""
    if has_ended():
        forget_session()
        return
    gateway = _brief_gateway()
    if gateway is None:
        spark.stop()
        return
    recorded: ClassArchive | None = getattr(gateway, _ARCHIVE)
    forget_session()
    # at the end of its input the JVM stops Spark and ends. pyspark's own stop would wait for half a second first
    with suppress(OSError):
        gateway.proc.stdin.close()
    if recorded is not None:
        with suppress(subprocess.TimeoutExpired):
            gateway.proc.wait(archive_seconds)
            recorded.keep()


def _brief_gateway() -> Any:
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    # not hasattr: a gateway has any attribute that it is asked for, as a member in Java
    return gateway if gateway is not None and _ARCHIVE in vars(gateway) else None
