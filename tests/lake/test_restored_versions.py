"""Somebody restores an earlier version of a table with Delta's RESTORE. Its transaction identifiers stay the newest."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable

from spark_jobs.configuration import Pipeline
from spark_jobs.options.table_mode import Mode
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.sync import sync
from spark_jobs.verify.verify import verify
from spark_jobs.writers.with_arrow.rows_of_table import rows_of_table
from tests.apply.several_modes import in_modes
from tests.fixtures.no_spark import no_spark, synced_without_spark
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres

ITEM = QualifiedName("public", "item")
MODES: tuple[Mode, ...] = ("mirror", "soft_delete", "history", "append")
STEPS = (
    ("INSERT INTO item VALUES (4, 'd')", "UPDATE item SET v = 'x' WHERE id = 2"),
    ("ALTER TABLE item ADD n int DEFAULT 7", "UPDATE item SET v = 'y', n = 8 WHERE id = 2"),
    ("DELETE FROM item WHERE id = 3",),
)


@pytest.fixture
def item(database: Database, tmp_path: Path) -> Pipeline:
    """In each mode, with a commit for its snapshot and one for each step at least."""
    database.execute(
        "CREATE TABLE item (id int PRIMARY KEY, v text)", "INSERT INTO item VALUES (1, 'a'), (2, 'b'), (3, 'c')"
    )
    pipeline = replace(pipeline_of(database, tmp_path / "lake", "public.item"), tables=in_modes(ITEM, *MODES))
    synced_without_spark(pipeline)
    for step in STEPS:
        database.execute(*step)
        synced_without_spark(pipeline)
    return pipeline


def tables(pipeline: Pipeline) -> dict[QualifiedName, DeltaTable]:
    return {table.name: DeltaTable(pipeline.lake.table(table.name)) for table in pipeline.tables or ()}


def rows(pipeline: Pipeline) -> dict[QualifiedName, list[str]]:
    """Those of the tables that the next change leaves as they are."""
    kept = {name: rows_of_table(table).to_pylist() for name, table in tables(pipeline).items()}
    return {name: sorted(str(row) for row in found if row["id"] != 1) for name, found in kept.items()}


def changed(database: Database, pipeline: Pipeline) -> tuple[str, ...]:
    """The next change; which tables get a snapshot."""
    database.execute("UPDATE item SET v = v || '!' WHERE id = 1")
    report = sync(pipeline, no_spark)
    assert report.errors == ()
    assert verify(pipeline, no_spark).problems == ()
    return tuple(taken.name.relname for taken in report.snapshots)


@pytest.mark.parametrize("back", [1, 2, 4])
def test_what_was_written_since_is_applied_again(database: Database, item: Pipeline, back: int) -> None:
    before = rows(item)
    for table in tables(item).values():
        table.restore(table.version() - min(back, table.version()))
    assert changed(database, item) == ()
    assert rows(item) == before


def test_a_version_that_was_restored_twice(database: Database, item: Pipeline) -> None:
    before = rows(item)
    for table in tables(item).values():
        table.restore(1)
        table.restore(table.version() - 1)  # the newest before the first RESTORE
        table.restore(table.version() - 1)  # and that RESTORE
    assert changed(database, item) == ()
    assert rows(item) == before


def test_a_version_that_was_named_by_a_time_is_read_again(database: Database, item: Pipeline) -> None:
    mirror = tables(item)[ITEM]
    mirror.restore(datetime.fromtimestamp(mirror.history()[1]["timestamp"] / 1000, UTC))
    assert changed(database, item) == ("item",)
    assert changed(database, item) == ()
