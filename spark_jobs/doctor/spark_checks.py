"""Spark's side: Java, Delta's jars, and the Python that executors run.

Local Spark is checked without starting it. If executors are elsewhere, a task runs on one of them.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec

from spark_jobs.configuration import SparkOptions
from spark_jobs.doctor.checks import Check, Verdict, fail, ok
from spark_jobs.errors import CdcError, SparkError
from spark_jobs.spark.delta_jars import coordinates, jars_conf
from spark_jobs.spark.java import find_java
from spark_jobs.spark.session import spark_session
from spark_jobs.spark.session_conf import has_executors
from spark_jobs.spark.worker_python import NEEDED_MODULES, ask_worker_python, worker_python

AREA = "spark"
PYTHON = "Python of executors"
OURS = f"{sys.version_info.major}.{sys.version_info.minor}"


def spark_checks(options: SparkOptions) -> Iterator[Check]:
    """For a Connect client only the client itself and an executor's Python; otherwise Java and jars too."""
    if options.remote is not None:
        client = _connect_client()
        yield client
        if client.verdict is Verdict.OK:
            yield _executor_python(options)
        return
    java, jars = _java(), _jars(options)
    yield java
    yield jars
    if not has_executors(options) or Verdict.FAIL not in (java.verdict, jars.verdict):
        yield _executor_python(options)


def _java() -> Check:
    try:
        java = find_java()
    except SparkError as error:
        return fail(AREA, "Java", error.what, f"{error.hint}; capture and status need none")
    return ok(AREA, "Java", f"{java.version} at {java.home}, from {java.origin}")


def _jars(options: SparkOptions) -> Check:
    try:
        conf = jars_conf(options)
        packages = ", ".join(coordinates(options.store))
    except SparkError as error:
        return fail(AREA, "Delta's jars", error.what, error.hint)
    if options.jars == "packages":
        return ok(AREA, "Delta's jars", f"{packages}, fetched from Maven when Spark first starts")
    if options.jars == "provided":
        return ok(AREA, "Delta's jars", f"the cluster's own; they must be {packages}")
    return ok(AREA, "Delta's jars", f"{conf['spark.jars'].count(',') + 1} jars in {options.jars}")


def _connect_client() -> Check:
    missing = [name for name in ("grpc", "grpc_status", "google.protobuf") if _absent(name)]
    if missing:
        return fail(AREA, "Spark Connect", f"not installed: {', '.join(missing)}", "pip install 'pyspark[connect]'")
    return ok(AREA, "Spark Connect", "the client is installed; the server brings Java and jars")


def _absent(module: str) -> bool:
    try:
        return find_spec(module) is None
    except ModuleNotFoundError:
        return True


def _executor_python(options: SparkOptions) -> Check:
    if not has_executors(options):
        return _local_python(worker_python(options, local=True) or sys.executable)
    try:
        python = ask_worker_python(spark_session(options))
    except CdcError as error:
        return fail(AREA, PYTHON, error.what, error.hint)
    named = _where_named(options)
    if python.version != OURS:
        return fail(
            AREA, PYTHON, f"{python.executable} is {python.version}, this is {OURS}", f"use one version: {named}"
        )
    if python.missing:
        remedy = f"install it for each executor's Python, or name another one in {named}"
        return fail(AREA, PYTHON, f"{python.executable} has no {', '.join(python.missing)}", remedy)
    return ok(AREA, PYTHON, f"{python.version}, {python.executable} of an executor, with all that is needed")


def _where_named(options: SparkOptions) -> str:
    if options.remote is not None:
        return "PYSPARK_PYTHON in the environment of the Spark Connect server"
    return "PYSPARK_PYTHON, or spark.pyspark.python in spark.config"


def _local_python(python: str) -> Check:
    """The worker's imports, without Spark around them."""
    program = f"import sys, {', '.join(NEEDED_MODULES)}; print('%d.%d' % sys.version_info[:2])"
    remedy = "unset PYSPARK_PYTHON and spark.pyspark.python: then it is the Python of this process"
    try:
        answer = subprocess.run([python, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return fail(AREA, PYTHON, f"{python} does not start: {getattr(error, 'strerror', 'no answer')}", remedy)
    if answer.returncode != 0:
        missing = (answer.stderr.strip().splitlines() or ["no reason given"])[-1]
        return fail(AREA, PYTHON, f"{python}: {missing}", f"install it there, or {remedy}")
    if answer.stdout.strip() != OURS:
        return fail(AREA, PYTHON, f"{python} is {answer.stdout.strip()}, this is {OURS}", remedy)
    return ok(AREA, PYTHON, f"{OURS}, {python}")
