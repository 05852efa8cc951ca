"""Streams in processes of their own: killed twenty times while the source is changed, and on other kinds of Spark. No
change is missing, and none is there twice."""

from __future__ import annotations

import pickle
import random
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable

from spark_jobs.capture.capture import capture
from spark_jobs.configuration import Pipeline, SparkOptions
from tests.fixtures import spark_connect
from tests.fixtures.forked_programs import ForkedProgram, run_program, start_program
from tests.fixtures.pipelines import pipeline_of, prepare_slot
from tests.fixtures.servers import Database
from tests.fixtures.spark import for_few_rows
from tests.logged_changes.audited_changes import MADE, TABLES, TRANSACTIONS, assert_as_audited, commit

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow, pytest.mark.nightly]

PROGRAM = "tests.logged_changes.streaming"
KILLS = 20


@pytest.fixture
def pipeline(database: Database, tmp_path: Path) -> Pipeline:
    database.execute(*MADE)
    pipeline = pipeline_of(database, tmp_path / "lake", *(f"public.{name}" for name in TABLES))
    prepare_slot(pipeline)
    return pipeline


def change(database: Database, pipeline: Pipeline) -> None:
    """All transactions, each in a window of its own; the tables are empty afterwards."""
    for statements in (*TRANSACTIONS, ["TRUNCATE {t}"]):
        commit(database, statements)
        capture(pipeline)


def arguments(options: SparkOptions, pipeline: Pipeline, folder: Path) -> tuple[str, ...]:
    (folder / "options").write_bytes(pickle.dumps(options))
    return (str(folder / "options"), pipeline.lake.path, "public.keyed", str(folder / "sink"), str(folder / "offsets"))


def assert_sink_as_audited(database: Database, folder: Path) -> None:
    rows = DeltaTable(str(folder / "sink")).to_pyarrow_table().to_pylist()
    assert_as_audited(sorted(rows, key=lambda row: (row["_commit_lsn"], row["_ordinal"])), database, "keyed")


def test_killed_twenty_times(database: Database, pipeline: Pipeline, jars_folder: Path, tmp_path: Path) -> None:
    program_arguments = arguments(for_few_rows(jars_folder), pipeline, tmp_path)
    chance = random.Random(7)  # noqa: S311
    change(database, pipeline)
    for turn in range(KILLS):
        said = tmp_path / f"said-{turn}"
        with said.open("w") as output:
            program = start_program(PROGRAM, *program_arguments, stdout=output, stderr=output)
        _wait_until_started(program, said)
        change(database, pipeline)
        time.sleep(chance.random() * 3)
        program.kill()
        program.wait()
    done = run_program(PROGRAM, *program_arguments, "once")
    assert done.returncode == 0, done.stderr
    assert_sink_as_audited(database, tmp_path)


def test_executors_in_processes_of_their_own(
    database: Database, pipeline: Pipeline, jars_folder: Path, without_our_package: Path, tmp_path: Path
) -> None:
    config = (("spark.executorEnv.PYTHONPATH", str(without_our_package)),)
    options = SparkOptions(master="local-cluster[2,1,1024]", jars=str(jars_folder), config=config)
    change(database, pipeline)
    done = run_program(PROGRAM, *arguments(options, pipeline, tmp_path), "once")
    assert done.returncode == 0, done.stderr
    assert_sink_as_audited(database, tmp_path)


def test_through_spark_connect(database: Database, pipeline: Pipeline, jars_folder: Path, tmp_path: Path) -> None:
    """The server's Python has this package."""
    change(database, pipeline)
    with spark_connect.connect_server(tmp_path, jars_folder) as server:
        options = SparkOptions(remote=server.url)
        done = run_program(PROGRAM, *arguments(options, pipeline, tmp_path), "once")
    assert done.returncode == 0, done.stderr
    assert_sink_as_audited(database, tmp_path)


def _wait_until_started(program: ForkedProgram, said: Path) -> None:
    deadline = time.monotonic() + 180
    while "started" not in said.read_text():
        # the JVM of the one before may still be at work on the same checkpoint
        if program.poll() is not None:
            return
        assert time.monotonic() < deadline, said.read_text()
        time.sleep(0.1)
