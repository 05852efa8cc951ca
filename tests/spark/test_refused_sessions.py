"""A session without Delta's extension is refused, and on Databricks by name. In a JVM of its own: it cannot be added
later, nor removed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from spark_jobs.spark.java import find_java

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

PROGRAM = """
import os
from pyspark.sql import SparkSession
from spark_jobs.errors import SparkError
from spark_jobs.spark.session import checked_session

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
for variable in ("OTHER", "DATABRICKS_RUNTIME_VERSION"):
    os.environ[variable] = "19.0"
    try:
        checked_session(spark)
    except SparkError as error:
        print(error.what)
"""


def test_a_session_without_delta(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(find_java().home))
    said = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines() == [
        "the Spark session that was provided has no Delta Lake",
        "Databricks is not supported",
    ]
