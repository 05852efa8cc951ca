"""A snapshot says how much of a large table is read, before all of it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.prepare import prepare
from spark_jobs.progress import Step
from spark_jobs.run import Run
from spark_jobs.snapshot import planned_table
from spark_jobs.snapshot import read_progress as read_progress_module
from spark_jobs.snapshot.snapshot import snapshot
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database
from tests.spark.altered_tables import assert_equal
from tests.spark.held_read import held_at_the_last_row, toast_index

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

ROWS = 20_000
RANGE_BYTES = 256 << 10


@pytest.fixture
def item(database: Database, monkeypatch: pytest.MonkeyPatch, read_by_executors: None) -> str:
    """A table of several ranges, whose last row has a value of its TOAST table. Returns that one's index."""
    monkeypatch.setattr(planned_table, "RANGE_BYTES", RANGE_BYTES)
    database.execute(
        "CREATE TABLE item (id int PRIMARY KEY, v text)",
        "ALTER TABLE item ALTER v SET STORAGE EXTERNAL",
        f"INSERT INTO item SELECT g, repeat('x', 50) FROM generate_series(1, {ROWS}) g",
        f"INSERT INTO item VALUES ({ROWS + 1}, repeat('x', 10000))",
    )
    return toast_index(database, "item")


def test_steps_come_while_a_table_is_read_and_end_with_all_of_it(
    spark: SparkSession, database: Database, item: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = pipeline_of(database, tmp_path / "lake", "public.item")
    prepare(pipeline)
    let_go = held_at_the_last_row(database, item, monkeypatch)
    steps: list[Step] = []

    def progress(step: Step, /) -> None:
        steps.append(step)
        if step.what == "read" and step.total is not None and step.done > step.total / 2:
            let_go()

    (taken,) = snapshot(Run(pipeline, lambda: spark, progress=progress))
    assert taken.error is None
    assert taken.rows == ROWS + 1
    reading, counted = [step for step in steps if step.what == "read"], steps[-1]
    assert (counted.what, counted.done, counted.total) == ("snapshot", 1, 1)
    assert all(step.unit == "bytes" and step.detail == "public.item" for step in reading)
    ((stored,),) = database.execute("SELECT pg_table_size('item')")
    assert {step.total for step in reading} == {reading[-1].done}
    assert isinstance(stored, int)
    assert stored * 0.9 < reading[-1].done <= stored
    done = [step.done for step in reading]
    assert len(done) >= 2
    assert done == sorted(set(done)), "each is more than the one before"
    assert_equal(spark, pipeline, taken.name)


def test_a_watch_that_is_refused_ends_without_the_snapshot(
    spark: SparkSession, database: Database, item: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session that watches is ended by the server at its first look."""
    monkeypatch.setattr(read_progress_module, "_RUNNING", "SELECT pg_terminate_backend(pg_backend_pid()), %(mark)s")
    monkeypatch.setattr(read_progress_module, "_SECONDS", 0.01)
    pipeline = pipeline_of(database, tmp_path / "lake", "public.item")
    prepare(pipeline)
    steps: list[Step] = []
    (taken,) = snapshot(Run(pipeline, lambda: spark, progress=steps.append))
    assert taken.error is None
    assert [step.what for step in steps] == ["snapshot"]
    assert_equal(spark, pipeline, taken.name)
