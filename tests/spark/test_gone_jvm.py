"""What py4j says when the JVM dies in mid-call is told as that; the same words before a Java trace are not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from spark_jobs.errors import LakeError
from spark_jobs.spark.errors import spark_errors

_CALL = "An error occurred while calling o451.sql"


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (_CALL, "work stopped: Py4JError: Spark's JVM has ended, most often for want of memory: raise"),
        (f"{_CALL}. Trace:\npy4j.Py4JException: Method sql([]) does not exist", "work stopped: Py4J"),
    ],
)
def test_in_mid_call(raised: str, said: str) -> None:
    with pytest.raises(LakeError) as stopped, spark_errors("work stopped"):
        raise Py4JError(raised)
    assert str(stopped.value).startswith(said)
    assert ("JVM has ended" in str(stopped.value)) is (raised == _CALL)


_STOPPING = """
import sys
from spark_jobs.configuration import SparkOptions
from spark_jobs.spark.errors import spark_errors
from spark_jobs.spark.session import spark_session

spark = spark_session(SparkOptions(master="local[1]", jars=sys.argv[1]))
with spark_errors("work stopped"):
    spark.sparkContext._jsc.sc().stop()
    spark._jvm.java.util.Objects.requireNonNull(None)
"""


@pytest.mark.spark
def test_while_it_takes_itself_apart(jars_folder: Path) -> None:
    """The JVM still answers, with an exception that says nothing. In a process of its own: it has no Spark after it."""
    command = [sys.executable, "-c", _STOPPING, str(jars_folder)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    (said,) = [line for line in answer.stderr.splitlines() if line.startswith("spark_jobs.errors.LakeError: ")]
    assert "work stopped: NullPointerException: Spark's JVM has ended" in said
