"""What a task gets of a reader and a piece, in a process that can import nothing of ours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.pandas.types import from_arrow_schema

from cdc_assets import ChangesSource
from spark_jobs.capture.capture import capture
from spark_jobs.logged_changes.changes import changes
from tests.fixtures.pipelines import pipeline_of, prepare_slot
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres

TASK = """
import pickle, sys
import pyarrow as pa
with open(sys.argv[1], "rb") as file:
    (reader, source), *partitions = pickle.load(file)
batches = [batch for partition in partitions for batch in reader.read(partition)]
with pa.ipc.new_stream(sys.argv[2], batches[0].schema) as stream:
    for batch in batches:
        stream.write_batch(batch)
ours = [name for name in sys.modules if name.startswith(("spark_jobs", "cdc_assets", "deltalake"))]
assert not ours, ours
"""


def test_a_task_needs_nothing_of_ours(database: Database, tmp_path: Path) -> None:
    database.execute(
        "CREATE TYPE mood AS ENUM ('sad', 'happy')",
        "CREATE DOMAIN short AS varchar(9)",
        "CREATE TYPE pair AS (a int, b mood)",
        (
            "CREATE TABLE item (id int PRIMARY KEY, n numeric(9,2), at timestamptz, tags text[], feels mood, d short,"
            " p pair, photo bytea)"
        ),
    )
    pipeline = pipeline_of(database, tmp_path / "lake", "public.item", binary=True)
    prepare_slot(pipeline)
    database.execute(
        "INSERT INTO item VALUES (1, 1.5, now(), '{a,b}', 'sad', 'x', (1, 'happy'), '\\x00')",
        "UPDATE item SET n = NULL, tags = NULL",
        "TRUNCATE item",
    )
    capture(pipeline)
    expected = changes(pipeline, "item").read_all()
    source = ChangesSource({"path": pipeline.lake.path, "table": "item"})
    reader = source.reader(from_arrow_schema(expected.schema))
    # Spark pickles reader and source together, and each partition by itself
    sent = cloudpickle.dumps([(reader, source), *reader.partitions()])  # type: ignore[no-untyped-call]
    (tmp_path / "sent").write_bytes(sent)
    shadow = tmp_path / "shadow"
    shadow.mkdir()
    for name in ("spark_jobs", "cdc_assets", "deltalake"):
        (shadow / f"{name}.py").write_text("raise ImportError('executors have nothing of it')\n")
    task = [sys.executable, "-c", TASK, str(tmp_path / "sent"), str(tmp_path / "rows")]
    subprocess.run(task, check=True, cwd=shadow, env={**os.environ, "PYTHONPATH": str(shadow)})
    assert pa.ipc.open_stream(tmp_path / "rows").read_all().cast(expected.schema) == expected
    assert len(cloudpickle.dumps(reader.partitions())) < 10_000  # type: ignore[no-untyped-call]
