"""A lake whose tables are where ``lake.tables`` has them, from the first sync to the last drop. No Spark."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.capture.capture import capture
from spark_jobs.configuration import Pipeline, Table, TablePatterns
from spark_jobs.drop.drop import drop
from spark_jobs.errors import LakeError
from spark_jobs.lake.table_folders import names_in_lake
from spark_jobs.options.folder_template import FolderTemplate
from spark_jobs.options.table_pattern import TablePattern
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.recover import recover
from spark_jobs.status import pipeline_status
from spark_jobs.sync import sync
from spark_jobs.verify.verify import verify
from tests.fixtures.no_spark import no_spark, synced_without_spark
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres

BRONZE = FolderTemplate("bronze/{schema}__{table}")
ONE_SCHEMA = FolderTemplate("{table}", "public")


def laid_out(pipeline: Pipeline, tables: FolderTemplate) -> Pipeline:
    return replace(pipeline, lake=replace(pipeline.lake, tables=tables))


def followed(database: Database, pipeline: Pipeline) -> Pipeline:
    """Every table of the source with a row that was read, and one that was captured."""
    names = [table.name for table in pipeline.tables or ()]
    for name in names:
        database.execute(
            f'CREATE SCHEMA IF NOT EXISTS "{name.nspname}"',
            f'CREATE TABLE "{name.nspname}"."{name.relname}" (id int PRIMARY KEY)',
            f'INSERT INTO "{name.nspname}"."{name.relname}" VALUES (1)',
        )
    synced_without_spark(pipeline)
    database.execute(
        *(f'INSERT INTO "{name.nspname}"."{name.relname}" VALUES (2)' for name in names),
        "SELECT pg_logical_emit_message(true, 'app', 'said')",
    )
    synced_without_spark(pipeline)
    equal(pipeline)
    return pipeline


def equal(pipeline: Pipeline) -> None:
    found = {table.name: (table.verdict, table.counts.source_rows) for table in verify(pipeline, no_spark).tables}
    assert found == {table.name: ("equal", 2) for table in pipeline.tables or ()}


def folders(lake: Path) -> set[str]:
    """Those of Delta tables."""
    return {str(log.parent.relative_to(lake)) for log in lake.rglob("_delta_log")}


@pytest.mark.parametrize(
    ("template", "tables", "expected"),
    [
        (BRONZE, ("public.orders", "a.b__c"), {"bronze/public__orders", "bronze/a__b__c"}),
        (ONE_SCHEMA, ("orders", "items"), {"orders", "items"}),
    ],
    ids=["bronze", "one schema"],
)
def test_from_the_first_sync_to_the_last_drop(
    database: Database, tmp_path: Path, template: FolderTemplate, tables: tuple[str, ...], expected: set[str]
) -> None:
    pipeline = laid_out(pipeline_of(database, tmp_path / "lake", *tables, messages=True), template)
    followed(database, pipeline)
    lake = Path(pipeline.lake.path)
    assert folders(lake) == expected | {"change_log", "cuts", "tables/_messages"}
    followed_names = {table.name for table in pipeline.tables or ()}
    assert set(names_in_lake(pipeline.lake)) >= followed_names
    # a table that is no longer followed stays, and goes with the lake
    fewer = replace(pipeline, tables=(pipeline.tables or ())[:1])
    assert len(synced_without_spark(fewer).tables) <= 2
    foreign = [lake / "notes.txt", lake / min(expected) / "mine.csv", lake / "others" / "deep" / "file.csv"]
    for file in foreign:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
    report = drop(fewer, lake=True)
    assert {removed.name for removed in report.removed if removed.kind == "table"} == set(map(str, followed_names))
    assert {file for file in lake.rglob("*") if file.is_file()} == set(foreign)
    assert len(report.left) == len(foreign)
    assert drop(fewer, lake=True).removed == ()


def test_an_interrupted_drop_leaves_no_empty_folder(database: Database, tmp_path: Path) -> None:
    pipeline = followed(database, laid_out(pipeline_of(database, tmp_path / "lake", "orders", "items"), BRONZE))
    stops = 4  # slot, publication, mark, and the first table

    class StoppedError(Exception):
        pass

    def stop(step: Any) -> None:
        if step.done == stops:
            raise StoppedError

    with pytest.raises(StoppedError):
        drop(pipeline, lake=True, progress=stop)
    with pytest.raises(LakeError, match="half removed"):
        recover(pipeline, no_spark)
    drop(pipeline, lake=True)
    assert list(Path(pipeline.lake.path).iterdir()) == []


COMMANDS: list[Callable[[Pipeline], object]] = [
    lambda pipeline: sync(pipeline, no_spark),
    capture,
    lambda pipeline: recover(pipeline, no_spark),
    lambda pipeline: verify(pipeline, no_spark),
    pipeline_status,
    lambda pipeline: drop(pipeline, lake=True),
]


def test_another_template_is_refused_until_the_tables_are_moved(database: Database, tmp_path: Path) -> None:
    before = followed(database, pipeline_of(database, tmp_path / "lake", "orders", "items", "gone"))
    lake = Path(before.lake.path)
    # of a table that is no longer followed, only its folder is known
    before = replace(before, tables=(before.tables or ())[:2])
    changed = laid_out(before, BRONZE)
    there, slots = folders(lake), database.execute("SELECT slot_name::text FROM pg_replication_slots")
    for command in COMMANDS:
        with pytest.raises(LakeError) as refused:
            command(changed)
        assert refused.value.what.removeprefix("nothing was removed: ") == (
            "lake.tables was tables/{schema}/{table}, and is bronze/{schema}__{table} now: public.gone is still at"
            f" {lake}/tables/public/gone (and 2 more)"
        )
        assert refused.value.hint == (
            f"move each table, public.gone to {lake}/bronze/public__gone, or set lake.tables back to"
            " tables/{schema}/{table}"
        )
    assert folders(lake) == there
    assert database.execute("SELECT slot_name::text FROM pg_replication_slots") == slots
    equal(before)
    (lake / "bronze").mkdir()
    for table in ("orders", "gone"):
        shutil.move(lake / "tables" / "public" / table, lake / "bronze" / f"public__{table}")
    with pytest.raises(LakeError, match=r"now: public\.items is still at \S+/tables/public/items: move each table"):
        sync(changed, no_spark)
    shutil.move(lake / "tables" / "public" / "items", lake / "bronze" / "public__items")
    equal(changed)
    assert synced_without_spark(changed).snapshots == ()
    database.execute("DELETE FROM orders", "INSERT INTO orders VALUES (8), (9)")
    assert synced_without_spark(changed).snapshots == ()
    equal(changed)
    with pytest.raises(LakeError, match=r"lake\.tables was bronze/\S+, and is tables/\S+ now: public\.gone is still"):
        sync(before, no_spark)


def test_a_folder_that_would_be_another_tables(database: Database, tmp_path: Path) -> None:
    public = followed(database, laid_out(pipeline_of(database, tmp_path / "lake", "orders"), ONE_SCHEMA))
    database.execute("CREATE SCHEMA sales", "CREATE TABLE sales.orders (id int PRIMARY KEY)")
    others = (Table(QualifiedName("sales", "orders")),)
    sales = replace(laid_out(public, FolderTemplate("{table}", "sales")), tables=others)
    with pytest.raises(LakeError) as refused:
        sync(sales, no_spark)
    assert refused.value.what == (
        "lake.tables was {table} for schema public, and is {table} for schema sales now: public.orders is still at"
        f" {public.lake.path}/orders"
    )
    assert refused.value.hint == "configure it as before, or replicate the other schema into another lake.path"
    equal(public)


def test_a_folder_that_was_another_tables_place(database: Database, tmp_path: Path) -> None:
    """Where the tables are moved to, the template of before would have had tables of another schema."""
    before = followed(
        database, laid_out(pipeline_of(database, tmp_path / "lake", "orders"), FolderTemplate("{schema}/{table}"))
    )
    changed = laid_out(before, FolderTemplate("bronze/{table}", "public"))
    shutil.move(Path(before.lake.path, "public"), Path(before.lake.path, "bronze"))
    assert synced_without_spark(changed).snapshots == ()
    equal(changed)


def test_patterns_find_their_tables_in_the_lake(database: Database, tmp_path: Path) -> None:
    """While the source cannot be reached, the folders' names are what is known."""
    pipeline = followed(database, laid_out(pipeline_of(database, tmp_path / "lake", "orders", "items"), BRONZE))
    patterns = TablePatterns((TablePattern.parse("public.o*"),), (), lambda name: (Table(name),))
    away = replace(pipeline.source, dsn=type(pipeline.source.dsn)("host=127.0.0.1 port=1"))
    status = pipeline_status(replace(pipeline, source=away, tables=None, patterns=patterns))
    assert [str(table.name) for table in status.tables] == ["public.orders"]


def test_a_schema_in_the_folder_of_the_messages(database: Database, tmp_path: Path) -> None:
    database.execute("CREATE SCHEMA _messages", "CREATE TABLE _messages.t (id int PRIMARY KEY)")
    pipeline = pipeline_of(database, tmp_path / "lake", "_messages.t", messages=True)
    assert sync(laid_out(pipeline, BRONZE), no_spark).errors == ()
    elsewhere = replace(pipeline, lake=replace(pipeline.lake, path=str(tmp_path / "other")))
    drop(laid_out(pipeline, BRONZE), lake=True)
    (error,) = sync(elsewhere, no_spark).errors
    assert "_messages.t lies in the folder of the messages table" in str(error)
