"""A table that another session alters is locked for as long as that takes: what is captured does not wait for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spark_jobs.capture.capture import capture
from spark_jobs.sync import prepare
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres


def test_tables_that_are_locked_hold_up_nothing(every_database: Database, tmp_path: Path) -> None:
    every_database.execute(
        "CREATE TABLE parted (id int PRIMARY KEY, t text) PARTITION BY RANGE (id)",
        "CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE parted_2 PARTITION OF parted FOR VALUES FROM (10) TO (20)",
        "CREATE TABLE plain (id int PRIMARY KEY, t text DEFAULT 'x', u int GENERATED ALWAYS AS (id + 1) STORED)",
        "CREATE TABLE filtered (id int PRIMARY KEY, t text)",
    )
    names = ("parted", "plain", "filtered")
    row_filter = " WHERE (id > 0)" if every_database.server.version >= 15 else ""
    every_database.execute(
        f"CREATE PUBLICATION theirs FOR TABLE parted, plain, filtered{row_filter} WITH (publish_via_partition_root)",
        f"CREATE PUBLICATION other FOR TABLE\n\n filtered{row_filter}, plain",
    )
    made = pipeline_of(every_database, tmp_path / "lake", *(f"public.{name}" for name in names))
    pipeline = replace(made, source=replace(made.source, publication=("theirs", "other")))
    prepare(pipeline)
    capture(pipeline)
    every_database.execute(
        "ALTER TABLE plain ADD v text DEFAULT 'x'",
        "INSERT INTO plain VALUES (1, 'x')",
        "INSERT INTO parted VALUES (15, 'x')",
        "INSERT INTO filtered VALUES (1, 'x')",
    )
    with every_database.connect() as other:
        other.execute("BEGIN; LOCK TABLE parted_1, plain, filtered IN ACCESS EXCLUSIVE MODE")
        prepare(pipeline)
        landed = capture(pipeline).landed
        other.execute("ROLLBACK")
    assert sum(marker.changes for marker in landed) == 3
