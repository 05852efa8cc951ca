"""Capture's memory does not grow with the transaction: a process of its own for each size, so that peaks compare."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from spark_jobs.slot_preparation import prepare_slot
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres

_CAPTURE = """
import resource, sys
from pydantic import SecretStr
from spark_jobs.capture import capture
from spark_jobs.configuration import Lake, Pipeline, Source, Table, WindowLimits
from spark_jobs.qualified_name import QualifiedName
_, dsn, name, lake = sys.argv
source = Source(SecretStr(dsn), slot=name, publication=name)
tables = (Table(QualifiedName("public", "t")),)
[marker] = capture(Pipeline(name, source, Lake(lake), windows=WindowLimits(1 << 40), tables=tables)).landed
print(marker.changes, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
"""
_MESSAGES = (
    "INSERT INTO t SELECT g, repeat(md5(g::text), 10) FROM generate_series(1, {0}) g",
    "UPDATE t SET v = v || 'x'",
)


def captured(database: Database, lake: Path, rows: int) -> tuple[int, int]:
    """Changes of one transaction, and the peak of the process that captured them in MiB."""
    prepare_slot(pipeline_of(database, lake, "t"))
    with database.connect() as connection, connection.transaction():
        for statement in _MESSAGES:
            connection.execute(statement.format(rows))
    command = [sys.executable, "-c", _CAPTURE, database.dsn, database.name, str(lake)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    changes, peak = map(int, done.stdout.split())
    return changes, peak


def test_peak_is_the_same_for_ten_times_the_changes(database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (id bigint PRIMARY KEY, v text)")
    small, small_peak = captured(database, tmp_path / "lake", 45_000)
    database.execute("TRUNCATE t")
    large, large_peak = captured(database, tmp_path / "lake", 450_000)
    assert (small, large) == (90_000, 900_001)
    # what may grow is the file being built (32 MiB) and Arrow's batches in flight, never the 300 MiB of messages
    assert large_peak - small_peak < 150, f"{small_peak} MiB for {small} changes, {large_peak} MiB for {large}"
