"""The Python that executors run: which one our sessions name, and what an executor says it has."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

from spark_jobs.configuration import SparkOptions
from spark_jobs.errors import CdcError, SparkError
from spark_jobs.spark.errors import spark_errors

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

NEEDED_MODULES = ("pyarrow", "numpy", "pandas", "adbc_driver_postgresql", "adbc_driver_manager")
_PATIENCE_SECONDS = 120  # a cluster may have to start an executor first


@dataclass(frozen=True)
class WorkerPython:
    """``version`` is major.minor; ``missing`` are the modules that it lacks."""

    version: str
    executable: str
    missing: tuple[str, ...]


def worker_python(options: SparkOptions, *, local: bool) -> str | None:
    """The Python that a classic session of ours starts as worker; None: the ``python3`` of each node.

    ``spark.pyspark.python`` takes precedence over the environment, as in Spark's manual. But only spark-submit reads
    it, when it starts a Python program. A JVM that a program starts, as ours does, uses only PYSPARK_PYTHON.
    https://spark.apache.org/docs/latest/configuration.html#environment-variables
    """
    named = dict(options.config).get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    return named or (sys.executable if local else None)


def ask_worker_python(spark: SparkSession) -> WorkerPython:
    """Run one task on one executor. Raises LakeError if it fails, SparkError if no executor takes it in time."""
    answers: SimpleQueue[WorkerPython | CdcError] = SimpleQueue()

    def ask() -> None:
        try:
            answers.put(_asked(spark))
        except CdcError as error:
            answers.put(error)

    Thread(target=ask, name="worker-python", daemon=True).start()  # a daemon: the process may end without it
    try:
        answer = answers.get(timeout=_PATIENCE_SECONDS)
    except Empty:
        raise SparkError(
            f"no executor took a task within {_PATIENCE_SECONDS} s", hint="check that the cluster has a free core"
        ) from None
    if isinstance(answer, CdcError):
        raise answer
    return answer


def _asked(spark: SparkSession) -> WorkerPython:
    with spark_errors("a task on an executor failed"):
        rows = spark.range(0, 1, 1, 1).mapInArrow(_answer, "answer string").collect()
    answer = json.loads(rows[0].answer)
    return WorkerPython(answer["version"], answer["executable"], tuple(answer["missing"]))


def _answer(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs on the executor."""
    from importlib.util import find_spec

    import pyarrow as pa

    for _ in batches:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        missing = [name for name in NEEDED_MODULES if find_spec(name) is None]
        answer = {"version": version, "executable": sys.executable, "missing": missing}
        yield pa.RecordBatch.from_pydict({"answer": [json.dumps(answer)]})
