"""The same snapshot and apply where executors are other processes, and where the client is not the driver."""

from __future__ import annotations

import os
import pickle
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyspark
import pytest

from spark_jobs.configuration import SparkOptions
from spark_jobs.spark.java import find_java
from spark_jobs.spark.session import session_conf
from tests.fixtures.servers import Database

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

_SPARK_HOME = Path(str(pyspark.__file__)).parent


@pytest.fixture
def without_our_package(tmp_path: Path) -> Path:
    """A folder that, on the PYTHONPATH of an executor, makes any import of ours fail: all must have been shipped."""
    folder = tmp_path / "shadow"
    folder.mkdir()
    (folder / "spark_jobs.py").write_text("raise ImportError('executors have nothing of ours on their path')\n")
    return folder


@pytest.fixture
def item(database: Database) -> Database:
    database.execute(
        "CREATE TABLE item (id bigint PRIMARY KEY, name text, price numeric(10,2), at timestamp, doc text)",
        "ALTER TABLE item ALTER doc SET STORAGE EXTERNAL",
        "INSERT INTO item SELECT g, 'name ' || g, g / 3.0, '2024-01-01'::timestamp + g * interval '1 min',"
        " repeat(md5(g::text), 400) FROM generate_series(1, 100) g",
    )
    return database


def _follow(options: SparkOptions, database: Database, folder: Path) -> None:
    (folder / "options").write_bytes(pickle.dumps(options))
    (folder / "database").write_bytes(pickle.dumps(database))
    arguments = [str(folder / "options"), str(folder / "database"), str(folder / "lake")]
    answer = subprocess.run(
        [sys.executable, "-m", "tests.spark.follow_elsewhere", *arguments], capture_output=True, text=True, check=False
    )
    assert answer.stdout.splitlines()[-1:] == ["lake equals source"], answer.stderr


def test_executors_in_processes_of_their_own(
    item: Database, jars_folder: Path, without_our_package: Path, tmp_path: Path
) -> None:
    config = (("spark.executorEnv.PYTHONPATH", str(without_our_package)),)
    options = SparkOptions(master="local-cluster[2,1,1024]", jars=str(jars_folder), config=config)
    try:
        _follow(options, item, tmp_path)
    finally:
        shutil.rmtree(_SPARK_HOME / "work", ignore_errors=True)


@pytest.fixture
def connect_server(jars_folder: Path, without_our_package: Path, tmp_path: Path) -> Iterator[str]:
    """A Spark Connect server from the pip package; its URL."""
    pytest.importorskip("grpc")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    conf = session_conf(SparkOptions(jars=str(jars_folder))) | {
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.grpc.binding.address": "127.0.0.1",
    }
    command = [str(_SPARK_HOME / "bin" / "spark-submit"), "--master", "local[2]"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    command += [part for item in conf.items() for part in ("--conf", "=".join(item))] + ["spark-internal"]
    environ = {**os.environ, "JAVA_HOME": str(find_java().home), "PYSPARK_PYTHON": sys.executable}
    environ["PYTHONPATH"] = str(without_our_package)
    log = tmp_path / "connect.log"
    with log.open("wb") as output:
        server = subprocess.Popen(command, stdout=output, stderr=output, env=environ, cwd=tmp_path)
    try:
        _wait_for(port, server, log)
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(30)


def _wait_for(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and server.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise AssertionError(log.read_text(errors="replace")[-3000:])


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


def test_the_doctor_asks_an_executor_of_a_cluster(jars_folder: Path, tmp_path: Path) -> None:
    """And which setting names its Python: PYSPARK_PYTHON does, and so does spark.pyspark.python."""
    bare = tmp_path / "bare-python"
    bare.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}/hidden exec {sys.executable} "$@"\n')
    bare.chmod(0o755)
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "sitecustomize.py").write_text(
        "import importlib.util as util\nfind = util.find_spec\n"
        "util.find_spec = lambda name, package=None: None if name.startswith('adbc') else find(name, package)\n"
    )
    cluster = SparkOptions(master="local-cluster[1,1,1024]", jars=str(jars_folder))
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    try:
        verdict, found, _ = _python_check(cluster, tmp_path, PYSPARK_PYTHON=sys.executable)
        assert (verdict, found.startswith(f"{ours}, "), "with all that is needed" in found) == ("ok", True, True), found
        named = replace(cluster, config=(("spark.pyspark.python", str(bare)),))
        verdict, found, remedy = _python_check(named, tmp_path, PYSPARK_PYTHON=sys.executable)
        assert (verdict, "has no adbc_driver_postgresql, adbc_driver_manager" in found) == ("fail", True), found
        assert "PYSPARK_PYTHON, or spark.pyspark.python in spark.config" in remedy
        absent = replace(cluster, config=(("spark.pyspark.python", "/no/such/python"),))
        verdict, found, remedy = _python_check(absent, tmp_path)
        assert (verdict, 'Cannot run program "/no/such/python"' in found) == ("fail", True), found
        assert "PYSPARK_PYTHON" in remedy
    finally:
        shutil.rmtree(_SPARK_HOME / "work", ignore_errors=True)


def test_the_doctor_asks_an_executor_of_a_connect_server(connect_server: str, tmp_path: Path) -> None:
    verdict, found, _ = _python_check(SparkOptions(remote=connect_server), tmp_path)
    assert (verdict, "with all that is needed" in found) == ("ok", True), found


def test_through_spark_connect(item: Database, connect_server: str, tmp_path: Path) -> None:
    _follow(SparkOptions(remote=connect_server), item, tmp_path)
