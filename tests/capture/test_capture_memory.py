"""Capture's memory does not grow with the transaction: a process of its own for each, so that peaks compare."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.at_night import at_night
from tests.fixtures.pipelines import pipeline_of, prepare_slot
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres

_CAPTURE = """
import json, resource, sys
from pydantic import SecretStr
from spark_jobs.capture.capture import capture
from spark_jobs.configuration import Lake, Pipeline, Source, Table, WindowLimits
from spark_jobs.qualified_name import QualifiedName
_, dsn, name, lake, options = sys.argv
source = Source(SecretStr(dsn), slot=name, publication=name, **json.loads(options))
tables = (Table(QualifiedName("public", "t")),)
[marker] = capture(Pipeline(name, source, Lake(lake), windows=WindowLimits(1 << 40), tables=tables)).landed
print(marker.changes, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
"""
ROWS = "INSERT INTO t SELECT g, repeat(md5(g::text), 10) FROM generate_series({0} + 1, {1}) g"
# random megabytes: stored out of line, uncompressed, and sent whole
WIDE_ROWS = "INSERT INTO t SELECT g, v FROM noise, generate_series({0} + 1, {1}) g"
NOISE = "SELECT string_agg(md5(random()::text), '') AS v FROM generate_series(1, 32 * 1024)"
HOW: dict[str, dict[str, Any]] = {
    "whole": {"proto_version": 1},
    "streamed": {"streaming": "on"},
    "prepared": {"streaming": "on", "two_phase": True},
    "lines": {"plugin": "test_decoding"},
}


def captured(
    database: Database, lake: Path, insert: str, rows: int, subtransactions: int, options: dict[str, Any]
) -> tuple[int, int]:
    """Changes of one transaction, and the peak of the process that captured them in MiB."""
    pipeline = pipeline_of(database, lake, "t", **options)
    prepare_slot(pipeline)
    step = rows // subtransactions
    with database.connect() as connection:
        connection.execute("BEGIN")
        for lo in range(0, rows, step):
            connection.execute("SAVEPOINT s")
            connection.execute(insert.format(lo, lo + step))
        connection.execute("SAVEPOINT s")
        connection.execute(insert.format(rows, rows + step))
        connection.execute("ROLLBACK TO s")
        gid = f"'{database.name}'"
        for end in (f"PREPARE TRANSACTION {gid}", f"COMMIT PREPARED {gid}") if "two_phase" in options else ("COMMIT",):
            connection.execute(end)
    command = [sys.executable, "-c", _CAPTURE, database.dsn, database.name, str(lake), json.dumps(options)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    changes, peak = map(int, done.stdout.split())
    return changes, peak


@pytest.mark.parametrize("how", ["streamed", *map(at_night, ("whole", "prepared", "lines"))])
@pytest.mark.parametrize(
    ("insert", "rows", "subtransactions"),
    [(ROWS, 50_000, 1_000), at_night(WIDE_ROWS, 20, 2)],
    ids=["many rows", "wide rows"],
)
def test_peak_is_the_same_for_ten_times_the_transaction(
    database: Database, tmp_path: Path, how: str, insert: str, rows: int, subtransactions: int
) -> None:
    database.execute(
        "CREATE TABLE t (id bigint PRIMARY KEY, v text)",
        "ALTER TABLE t ALTER v SET STORAGE EXTERNAL",
        f"CREATE TABLE noise AS {NOISE}",
        f"ALTER DATABASE {database.name} SET logical_decoding_work_mem = '1MB'",
    )
    small, small_peak = captured(database, tmp_path, insert, rows, subtransactions, HOW[how])
    database.execute("TRUNCATE t")
    large, large_peak = captured(database, tmp_path, insert, 10 * rows, subtransactions, HOW[how])
    assert (small, large) == (rows, 10 * rows + 1)
    # what may grow is the file being built (32 MiB) and Arrow's batches in flight, never the 200 MiB of messages
    assert large_peak - small_peak < 150, f"{small_peak} MiB for {small} changes, {large_peak} MiB for {large}"
