"""Spark Connect's errors are of other classes than classic Spark's: what they say is found all the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

SECRET = "cell-4711"
_FAILING = f"""
import sys
from spark_jobs.configuration import SparkOptions
from spark_jobs.errors import CdcError
from spark_jobs.spark.errors import spark_errors
from spark_jobs.spark.session import spark_session

spark = spark_session(SparkOptions(remote=sys.argv[1]))

def no_module(batches):
    import nosuch
    yield from batches

def value(batches):
    raise ValueError("{SECRET}")
    yield

for work in (
    lambda: spark.range(3).mapInArrow(no_module, "id long").collect(),
    lambda: spark.range(3).mapInArrow(value, "id long").collect(),
    lambda: spark.range(3).write.format("delta").save(sys.argv[2] + "/file/table"),
    lambda: spark.sql("SELECT CAST(concat('{SECRET}', id) AS int) FROM range(3)").collect(),
):
    try:
        with spark_errors("work stopped"):
            work()
    except CdcError as error:
        print(error)
"""


@pytest.mark.nightly
def test_causes_come_through_spark_connect(connect_server: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    command = [sys.executable, "-c", _FAILING, connect_server, str(tmp_path)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    said = answer.stdout.splitlines()
    assert len(said) == 4, answer.stderr
    assert SECRET not in answer.stdout
    module, value, folder, cast = said
    assert module.startswith("work stopped: ModuleNotFoundError: No module named 'nosuch': install it")
    assert value.startswith("work stopped: ")
    assert value.endswith("ValueError")
    assert f"{tmp_path}/file" in folder
    assert folder.endswith("let the user that Spark runs as write there, or choose another lake.path")
    assert cast.startswith("work stopped: CAST_INVALID_INPUT")
