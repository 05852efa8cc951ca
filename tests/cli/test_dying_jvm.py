"""Spark's JVM dies while a command uses it: one line says so, and what is done by then is told and kept."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from spark_jobs.spark.session_conf import INTERPRETED
from tests.cli.command import SPARK, configured, run_here
from tests.fixtures.java_processes import java_processes
from tests.fixtures.servers import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.postgres, pytest.mark.spark]


def test_one_line_says_so_and_the_next_sync_mends_it(
    database: Database, spark: SparkSession, jars_folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, note text)",
        "CREATE TABLE items (id int PRIMARY KEY, note text)",
        "INSERT INTO orders SELECT g, 'note' FROM generate_series(1, 2000) g",
        "INSERT INTO items SELECT g, 'note' FROM generate_series(1, 2000) g",
    )
    options = {"master": "local[2]", "jars": str(jars_folder), "config": INTERPRETED}
    command = configured(
        tmp_path, database.dsn, database.name, ["public.orders", "public.items"], spark=options, merge=SPARK
    )
    here = run_here(command, spark, capfd)
    first = here("sync")
    assert first.exit_code == 0, first.stderr
    database.execute(*(f"UPDATE {table} SET note = note || id WHERE id % 3 = 0" for table in ("orders", "items")))
    files = set(tmp_path.glob("lake/tables/**/*.parquet"))

    def is_merging() -> bool:
        return set(tmp_path.glob("lake/tables/**/*.parquet")) > files

    killer = threading.Thread(target=_kill_java, args=(is_merging,))
    killer.start()
    died = command("sync")
    killer.join()
    assert died.exit_code == 1
    assert "defect" not in died.stderr
    assert "Traceback" not in died.stderr
    assert "Spark's JVM has ended" in died.stderr
    assert all(line.startswith(("postgres-cdc: ", "hint: ")) for line in died.stderr.splitlines()), died.stderr
    assert here("sync").exit_code == 0
    assert here("verify").exit_code == 0


def _kill_java(is_time: Callable[[], bool]) -> None:
    """The JVM of the command that this process starts next, once it is time."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        found = [each for each in java_processes(psutil.Process().pid) if _is_of_command(each)]
        if found and is_time():
            for each in found:
                each.kill()
            return
        time.sleep(0.01)
    raise TimeoutError("no JVM was started")


def _is_of_command(process: psutil.Process) -> bool:
    """Not the JVM of this process's own session."""
    with suppress(psutil.NoSuchProcess):
        return process.ppid() != psutil.Process().pid
    return False
