"""Two pipelines with one slot by mistake: the second is refused by name, and the first goes on. No Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spark_jobs.capture.capture import capture
from spark_jobs.configuration import Lake, Pipeline
from spark_jobs.doctor.log_check import change_log_check
from spark_jobs.errors import SlotError
from spark_jobs.postgres.publication_comment import PublicationComment
from tests.fixtures.pipelines import pipeline_of, prepare_slot
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres

COMMENT = "SELECT obj_description(oid, 'pg_publication') FROM pg_publication"


@pytest.fixture
def first(database: Database, tmp_path: Path) -> Pipeline:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY)", "CREATE TABLE items (id int PRIMARY KEY)")
    pipeline = pipeline_of(database, tmp_path / "first", "public.orders")
    prepare_slot(pipeline)
    return pipeline


def elsewhere(pipeline: Pipeline, tmp_path: Path, database: Database) -> Pipeline:
    """The same name, and so the same slot and publication, with another lake and another table."""
    return replace(pipeline_of(database, tmp_path / "second", "public.items"), name=pipeline.name)


def found_by_doctor(pipeline: Pipeline) -> str:
    *_, check = change_log_check(pipeline)
    return f"{check.verdict.name} {check.found}"


def test_the_slot_of_another_lake_is_refused(database: Database, first: Pipeline, tmp_path: Path) -> None:
    second = elsewhere(first, tmp_path, database)
    before = database.execute(COMMENT)
    with pytest.raises(
        SlotError, match=rf"slot {database.name} is read for another lake: lake.path .*second"
    ) as refused:
        prepare_slot(second)
    assert "source.adopt_slot: true" in str(refused.value.hint)
    assert found_by_doctor(second).startswith("FAIL slot")
    assert not (tmp_path / "second").exists()
    assert database.execute("SELECT tablename::text FROM pg_publication_tables") == [("orders",)]
    assert database.execute(COMMENT) == before
    database.execute("INSERT INTO orders VALUES (1)")
    assert sum(marker.changes for marker in capture(first).landed) == 1


def test_a_lake_that_is_given_up(database: Database, first: Pipeline, tmp_path: Path) -> None:
    second = elsewhere(first, tmp_path, database)
    adopting = replace(second, source=replace(second.source, adopt_slot=True))
    prepare_slot(adopting)
    prepare_slot(second)  # from here on the slot is its own
    assert found_by_doctor(second) == "OK no gap between them"


def test_what_is_no_mistake(database: Database, first: Pipeline, tmp_path: Path) -> None:
    database.execute(f"SELECT pg_create_logical_replication_slot('{database.name}_2', 'pgoutput')")
    source = replace(first.source, slot=f"{database.name}_2")
    beside = replace(first, source=source, lake=Lake(str(tmp_path / "beside")))
    assert found_by_doctor(beside) == "OK no other lake is known to read the slot"
    prepare_slot(beside)  # a slot made by hand, and a publication shared
    (tmp_path / "first").rename(tmp_path / "moved")
    prepare_slot(replace(first, lake=Lake(str(tmp_path / "moved"))))
    [(text,)] = database.execute(COMMENT)
    comment = PublicationComment.parse(str(text))
    assert comment is not None
    assert set(dict(comment.logs)) == {database.name, f"{database.name}_2"}
    assert str(comment) == text
    # the slot was dropped: the next lake makes one of its own
    database.execute(f"SELECT pg_drop_replication_slot('{database.name}')")
    prepare_slot(elsewhere(first, tmp_path, database))


def test_a_publication_of_an_earlier_release(database: Database, first: Pipeline, tmp_path: Path) -> None:
    """Its comment names no change log; the first look of its own pipeline adds it."""
    database.execute(f"COMMENT ON PUBLICATION {database.name} IS '{PublicationComment()}'")
    prepare_slot(first)
    with pytest.raises(SlotError, match="is read for another lake"):
        prepare_slot(elsewhere(first, tmp_path, database))
