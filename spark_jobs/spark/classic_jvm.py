"""Start the JVM of classic Spark, with its output in a file and Delta on its class path. Not for Spark Connect."""

from __future__ import annotations

import atexit
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from spark_jobs.configuration import SparkOptions
from spark_jobs.errors import SparkError, first_line
from spark_jobs.spark.class_archive import ClassArchive, class_archive
from spark_jobs.spark.driver_jars import class_path, remember
from spark_jobs.spark.java import find_java
from spark_jobs.spark.own_jvm import remember_brief
from spark_jobs.spark.session_conf import HIDDEN, JAVA_OPTIONS, is_local, session_conf
from spark_jobs.spark.worker_python import worker_python

# A JVM that ends after little work compiles its code once and quickly: what the second compiler makes of it would pay
# off only later
_BRIEF_OPTION = "-XX:TieredStopAtLevel=1"
_CLASS_PATH = "SPARK_DIST_CLASSPATH"  # the only variable of Spark's scripts whose jars come after Spark's own


@dataclass(frozen=True)
class _Start:
    """One attempt: ``conf`` of the session, ``jars`` for the class path, ``archive`` where one may be used. It may be
    made by a ``brief`` JVM: that one is about to end, and somebody waits until it has."""

    master: str
    conf: dict[str, str]
    jars: str
    archive: ClassArchive | None
    brief: bool


def start_jvm(options: SparkOptions, *, brief: bool) -> dict[str, str]:
    """Start a JVM and Spark in it, and return the conf for the session. ``brief``: see ``spark_session``.

    Raises SparkError: no Java, no jars, a JVM that does not start.
    """
    from pyspark import SparkContext

    java = find_java()
    os.environ["JAVA_HOME"] = str(java.home)  # read by Spark's launcher, here and for local executors
    if python := worker_python(options, local=is_local(options)):
        os.environ["PYSPARK_PYTHON"] = python
    jars = class_path(options) if is_local(options) else ""
    conf = session_conf(options, with_jars=not jars)
    brief = brief and is_local(options)
    if brief and JAVA_OPTIONS not in dict(options.config):
        conf[JAVA_OPTIONS] = f"{conf[JAVA_OPTIONS]} {_BRIEF_OPTION}"
    # an archive without Delta would be useful only once: from the next start on, the jars that Ivy found are on the
    # class path
    is_complete = is_local(options) and bool(jars or options.jars == "provided")
    archive = class_archive(java.home, jars, conf.get(JAVA_OPTIONS, "")) if is_complete else None
    start = _Start(options.master or "local[*]", conf, jars, archive, brief)
    try:
        _launch(start)
    except SparkError:
        if archive is None or not archive.exists or SparkContext._gateway is not None:
            raise
        _launch(replace(start, archive=None))
        archive.discard()  # a damaged archive crashes the JVM
    if options.jars == "packages" and is_local(options) and not jars:
        _remember_packages(options)
    return conf


def _launch(start: _Start) -> None:
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    log = _jvm_log()
    logging = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
    conf, recording = dict(start.conf), None
    if start.archive is not None and start.archive.exists:
        conf[JAVA_OPTIONS] = f"{conf.get(JAVA_OPTIONS, '')} {start.archive.use()}"
    elif start.archive is not None and start.brief:
        recording = start.archive.record_if_due()
    conf[JAVA_OPTIONS] = " ".join(filter(None, [logging, conf.get(JAVA_OPTIONS), recording]))
    spark_conf = SparkConf(loadDefaults=False).setMaster(start.master).setAll(list(conf.items()))
    # everybody on this machine can read the JVM's command line; the gateway carries the rest
    shown = [(key, value) for key, value in conf.items() if not re.search(HIDDEN, key)]
    launched = SparkConf(loadDefaults=False).setMaster(start.master).setAll(shown)
    try:
        with _on_class_path(start.jars):
            gateway = launch_gateway(launched, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
        SparkContext(conf=spark_conf, gateway=gateway)
    except Exception as error:
        raise SparkError(f"Spark did not start ({_reason(log, error)})", hint=f"see {log.name}") from error
    if start.brief:
        remember_brief(gateway, start.archive if recording else None)


@contextmanager
def _on_class_path(jars: str) -> Iterator[None]:
    """For processes that are started meanwhile, and what they start."""
    before = os.environ.get(_CLASS_PATH)
    if jars:
        os.environ[_CLASS_PATH] = os.pathsep.join([*([before] if before else []), jars])
    try:
        yield
    finally:
        if before is not None:
            os.environ[_CLASS_PATH] = before
        elif jars:
            del os.environ[_CLASS_PATH]


def _remember_packages(options: SparkOptions) -> None:
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is not None:
        remember(options, [jar for jar in (context.getConf().get("spark.jars") or "").split(",") if jar])


def _jvm_log() -> IO[bytes]:
    """The file for the output of the JVM and its Python workers: JVM warnings, Ivy's report, Spark's banner."""
    log = tempfile.NamedTemporaryFile(prefix="postgres-cdc-spark-", suffix=".log", delete=False)  # noqa: SIM115
    process = os.getpid()

    def remove() -> None:
        # a fork of this process must not delete the file; after a failed start it stays to be read
        if os.getpid() == process and not _failed(Path(log.name)):
            Path(log.name).unlink(missing_ok=True)

    atexit.register(remove)
    return log


def _failed(log: Path) -> bool:
    return log.is_file() and "Exception in thread" in log.read_text(errors="replace")


def _reason(log: IO[bytes], error: Exception) -> str:
    """The line of the JVM's output that gives the reason, else the first line of the exception."""
    output = Path(log.name).read_text(errors="replace")
    match = re.search(r"^(?:Exception in thread .*|Error: .*|.*unresolved dependency.*)$", output, re.MULTILINE)
    return match[0].strip() if match else first_line(error)
