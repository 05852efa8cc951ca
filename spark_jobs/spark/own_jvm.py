"""The JVM that classic Spark keeps beside this process. Not for Spark Connect."""

from __future__ import annotations


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
