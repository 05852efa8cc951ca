"""Spark's side, without starting it: Java, Delta's jars, and the Python that executors will run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec

from spark_jobs.configuration import SparkOptions
from spark_jobs.doctor.checks import Check, fail, ok, warn
from spark_jobs.errors import SparkError
from spark_jobs.spark.delta_jars import delta_coordinate, jars_conf
from spark_jobs.spark.java import find_java

AREA = "spark"
_NEEDED = ("pyarrow", "numpy", "pandas")


def spark_checks(options: SparkOptions) -> Iterator[Check]:
    """For a Connect client only the client itself; else Java, jars and Python."""
    if options.remote is not None:
        yield _connect_client()
        return
    try:
        java = find_java()
        yield ok(AREA, "Java", f"{java.version} at {java.home}, from {java.origin}")
    except SparkError as error:
        yield fail(AREA, "Java", error.what, f"{error.hint}; capture, status and doctor need none")
    yield _jars(options)
    yield _executor_python(options)


def _jars(options: SparkOptions) -> Check:
    try:
        conf = jars_conf(options.jars)
        coordinate = delta_coordinate()
    except SparkError as error:
        return fail(AREA, "Delta's jars", error.what, error.hint)
    if options.jars == "packages":
        return ok(AREA, "Delta's jars", f"{coordinate}, fetched from Maven when Spark first starts")
    if options.jars == "provided":
        return ok(AREA, "Delta's jars", f"the cluster's own; they must be {coordinate}")
    return ok(AREA, "Delta's jars", f"{conf[0][1].count(',') + 1} jars in {options.jars}")


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
    what = "Python of executors"
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    python = dict(options.config).get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    if options.master is not None and not options.master.startswith("local"):
        remedy = f"each node needs Python {ours} with {', '.join(_NEEDED)}; name it in spark.pyspark.python"
        return warn(AREA, what, f"{python or 'python3'} on the cluster's nodes, not seen from here", remedy)
    python = python or sys.executable
    program = f"import sys, {', '.join(_NEEDED)}; print('%d.%d' % sys.version_info[:2])"
    try:
        answer = subprocess.run([python, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    except OSError as error:
        return fail(AREA, what, f"{python} does not start: {error.strerror}", "unset PYSPARK_PYTHON")
    if answer.returncode != 0:
        missing = (answer.stderr.strip().splitlines() or ["no reason given"])[-1]
        return fail(AREA, what, f"{python}: {missing}", "unset PYSPARK_PYTHON, or install it there")
    if answer.stdout.strip() != ours:
        return fail(AREA, what, f"{python} is {answer.stdout.strip()}, this is {ours}", "use the same version")
    return ok(AREA, what, f"{ours}, {python}")
