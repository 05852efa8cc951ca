"""A table in mode append whose snapshots read no rows: it has what was committed since its first sync, and no more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from spark_jobs.configuration import Pipeline, SnapshotOptions, Table
from spark_jobs.errors import ConfigurationError
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.snapshot.snapshot import snapshot
from spark_jobs.verify.verify import verify
from spark_jobs.writers.with_arrow.rows_of_table import rows_of_table
from tests.fixtures.no_spark import no_spark, synced_without_spark
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database

EVENT = QualifiedName("public", "event")


def lake_rows(pipeline: Pipeline) -> list[tuple[object, ...]]:
    rows = rows_of_table(DeltaTable(pipeline.lake.table(EVENT)))
    names = ["id", *(name for name in rows.column_names if name == "_operation")]
    return sorted(zip(*(rows.column(name).to_pylist() for name in names), strict=True))


@pytest.mark.postgres
def test_rows_from_before_are_never_read(database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE event (id int PRIMARY KEY, v text)", "INSERT INTO event VALUES (1, 'old')")
    table = Table(EVENT, "append", begins_empty=True)
    made = pipeline_of(database, tmp_path / "lake")
    pipeline = replace(made, tables=(table,), snapshot=SnapshotOptions(chunk_bytes=1))  # large tables begin empty, too
    synced_without_spark(pipeline)
    assert lake_rows(pipeline) == []
    database.execute("INSERT INTO event VALUES (2, 'new')", "UPDATE event SET v = 'x' WHERE id = 1")
    synced_without_spark(pipeline)
    changes = [(1, "update"), (2, "insert")]
    assert lake_rows(pipeline) == changes
    assert verify(pipeline, no_spark).tables == ()

    # what sends no rows begins another generation, which keeps those that are there
    database.execute("ALTER TABLE event ALTER v TYPE varchar(9) USING upper(v)")
    (again,) = synced_without_spark(pipeline).snapshots
    assert again.rows == 0
    database.execute("DELETE FROM event WHERE id = 1")
    synced_without_spark(pipeline)
    (taken,) = snapshot(Run(pipeline, no_spark), [EVENT])
    assert (taken.error, taken.rows) == (None, 0)
    assert lake_rows(pipeline) == [(1, "delete"), *changes]

    # the log does not lead to a mirror of rows that nobody has read
    mirror = replace(made, tables=(Table(EVENT),))
    (read,) = synced_without_spark(mirror).snapshots
    assert "the change log does not lead there" in read.reason
    assert lake_rows(mirror) == [(2,)]


def test_other_modes_need_the_rows() -> None:
    with pytest.raises(ConfigurationError, match="leaves out the rows that mode mirror would have to show"):
        Table(EVENT, begins_empty=True)
