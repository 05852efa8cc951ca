"""The session of a run in Dagster: a brief one only where little is ahead, and such a session ends with the run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cdc_assets.spark_resource import DeltaSparkResource
from spark_jobs.configuration import SparkOptions
from spark_jobs.spark.provider import LazySession

# a process of its own: the session of the tests' own process goes on
_PROGRAM = """
import sys
from cdc_assets.spark_resource import DeltaSparkResource
from spark_jobs.configuration import SparkOptions
from spark_jobs.spark.own_jvm import is_brief

resource = DeltaSparkResource.of(SparkOptions(master="local[1]", jars=sys.argv[1]), may_be_brief=True)
resource.provider.expect(lambda: sys.argv[2] == "little")
spark = resource.provider()
print(is_brief(), resource.provider() is spark, resource.spark_session is spark)
resource.end()
print(is_brief())
if sys.argv[2] != "little":
    print(spark.range(3).count())
"""


@pytest.mark.spark
@pytest.mark.parametrize(
    ("ahead", "printed"),
    [("little", "True True True False"), ("much", "False True True False 3")],
)
def test_a_brief_session_ends_with_the_run(jars_folder: Path, ahead: str, printed: str) -> None:
    call = [sys.executable, "-c", _PROGRAM, str(jars_folder), ahead]
    done = subprocess.run(call, capture_output=True, text=True, check=True)
    assert done.stdout.split() == printed.split()


def test_only_the_session_of_a_sync_is_told() -> None:
    told = [DeltaSparkResource.of(SparkOptions(), may_be_brief=brief).provider for brief in (True, False)]
    assert [isinstance(provider, LazySession) for provider in told] == [True, False]
