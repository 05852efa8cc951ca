"""What the doctor says of executors that are not on this machine: it asks one of them."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from spark_jobs.configuration import SparkOptions

pytestmark = pytest.mark.spark


_DOCTOR = """
import pickle, sys
from spark_jobs.doctor.spark_checks import spark_checks

for check in spark_checks(pickle.loads(open(sys.argv[1], "rb").read())):
    print(check.what, check.verdict.value, check.found, check.remedy, sep="|")
"""


def _python_check(options: SparkOptions, folder: Path, **environ: str) -> list[str]:
    """What the doctor says of the Python of executors: verdict, found, remedy."""
    file = folder / "doctor's options"
    file.write_bytes(pickle.dumps(options))
    answer = subprocess.run(
        [sys.executable, "-c", _DOCTOR, str(file)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environ},
    )
    checks = [line.split("|") for line in answer.stdout.splitlines()]
    found = [rest for what, *rest in checks if what == "Python of executors"]
    assert len(found) == 1, answer.stdout + answer.stderr
    return found[0]


@pytest.mark.nightly
def test_the_doctor_asks_an_executor_of_a_cluster(jars_folder: Path, tmp_path: Path) -> None:
    """And spark.pyspark.python names its Python, before PYSPARK_PYTHON."""
    bare = tmp_path / "bare-python"
    bare.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}/hidden exec {sys.executable} "$@"\n')
    bare.chmod(0o755)
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "sitecustomize.py").write_text(
        "import importlib.util as util\nfind = util.find_spec\n"
        "util.find_spec = lambda name, package=None: None if name.startswith('adbc') else find(name, package)\n"
    )
    cluster = SparkOptions(
        master="local-cluster[1,1,1024]", jars=str(jars_folder), config=(("spark.pyspark.python", str(bare)),)
    )
    verdict, found, remedy = _python_check(cluster, tmp_path, PYSPARK_PYTHON=sys.executable)
    assert (verdict, "has no adbc_driver_postgresql, adbc_driver_manager" in found) == ("fail", True), found
    assert "PYSPARK_PYTHON, or spark.pyspark.python in spark.config" in remedy


def test_the_doctor_says_which_python_could_not_be_run(jars_folder: Path, tmp_path: Path) -> None:
    absent = SparkOptions(
        master="local[1]", jars=str(jars_folder), config=(("spark.pyspark.python", "/no/such/python"),)
    )
    verdict, found, remedy = _python_check(absent, tmp_path)
    assert (verdict, found.startswith("/no/such/python does not start")) == ("fail", True), found
    assert "PYSPARK_PYTHON" in remedy


@pytest.mark.nightly
def test_the_doctor_asks_an_executor_of_a_connect_server(connect_server: str, tmp_path: Path) -> None:
    verdict, found, _ = _python_check(SparkOptions(remote=connect_server), tmp_path)
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert (verdict, found.startswith(f"{ours}, "), "with all that is needed" in found) == ("ok", True, True), found
