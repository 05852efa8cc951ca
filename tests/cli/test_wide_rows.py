"""A row of 160 MB: with the engine ``auto`` no JVM starts for it, and memory is a few times the row."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_jobs.configuration import Lake
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.writers.with_arrow.rows_of_table import readable_table, rows_of_table
from tests.cli.command import configured
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres

_ROW_MIB = 160
_MOST_MIB = 8 * _ROW_MIB
_SYNC = """
import resource, sys
from cdc_assets.cli import main
try:
    main()
finally:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10, file=sys.stderr)
"""


def test_a_row_needs_no_jvm_and_a_few_times_its_size(database: Database, tmp_path: Path) -> None:
    database.execute(
        "CREATE TABLE documents (id int PRIMARY KEY, doc jsonb)",
        "INSERT INTO documents VALUES (1, NULL)",
    )
    command = configured(tmp_path, database.dsn, database.name, ["public.documents"])
    assert command("sync", without_java=True).exit_code == 0

    database.execute(
        f"INSERT INTO documents VALUES (2, to_jsonb(repeat('wide', {_ROW_MIB << 18})))",
        "INSERT INTO documents SELECT g, '{}' FROM generate_series(3, 100) g",
    )
    environment = {**os.environ, **command.environment, "JAVA_HOME": "/nonexistent", "PATH": "/nonexistent"}
    call = [sys.executable, "-c", _SYNC, "sync", "--config", str(command.configuration)]
    done = subprocess.run(call, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stderr) < _MOST_MIB

    table = readable_table(Lake(str(tmp_path / "lake")).table(QualifiedName("public", "documents")))
    assert table is not None
    documents = dict(zip(*(column.to_pylist() for column in rows_of_table(table).columns), strict=True))
    assert documents.pop(2) == f'"{"wide" * (_ROW_MIB << 18)}"'
    assert documents == {1: None, **dict.fromkeys(range(3, 101), "{}")}
