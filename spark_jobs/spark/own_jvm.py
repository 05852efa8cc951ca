"""The JVM that classic Spark keeps beside this process. Not for Spark Connect."""

from __future__ import annotations

import re
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from spark_jobs.spark.class_archive import ClassArchive
from spark_jobs.spark.session_conf import BRIEF, JAVA_OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WRITES_ARCHIVE_SECONDS = 120


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


def is_brief(spark: SparkSession) -> bool:
    """Whether it was started as a brief session (see ``spark_session``)."""
    return spark.conf.get(BRIEF, None) is not None


def end_session(spark: SparkSession) -> None:
    """Stop ``spark``, and end the JVM of a brief one. If that JVM is writing an archive of its classes, wait for it."""
    from pyspark import SparkContext

    if not is_brief(spark):
        spark.stop()
        return
    context, gateway = SparkContext._active_spark_context, SparkContext._gateway
    recorded = re.search(r"-XX:ArchiveClassesAtExit=(\S+)", (context and context.getConf().get(JAVA_OPTIONS)) or "")
    forget_session()
    if gateway is None:
        return
    # it ends with its input, and stops Spark before. pyspark's own stop would wait for half a second first
    gateway.proc.stdin.close()
    if recorded:
        with suppress(subprocess.TimeoutExpired):
            gateway.proc.wait(_WRITES_ARCHIVE_SECONDS)
            ClassArchive(Path(recorded[1]).with_suffix("")).keep()
