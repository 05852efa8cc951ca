"""``on_schema_change``: a table stops before a change that the configuration refuses, alone, until it is accepted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from spark_jobs.capture.capture import capture
from spark_jobs.configuration import MergeEngine, Pipeline
from spark_jobs.errors import RefusedChangeError
from spark_jobs.options.schema_policy import SchemaPolicy
from spark_jobs.options.table_mode import Mode
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.snapshot.snapshot import snapshot
from spark_jobs.status import pipeline_status
from spark_jobs.sync import sync
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database
from tests.spark.altered_tables import assert_equal, in_public, read_again, synced

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

STOP = SchemaPolicy("stop", "stop", "stop")
# table → what is done to it, and what its error says; its columns were id, a and b, int, and n, numeric(5,2)
REFUSED = {
    "added": ("ADD c text", "column c was added, and on_schema_change says add: stop"),
    "defaulted": ("ADD c int DEFAULT 7", "column c was added, and on_schema_change says add: stop"),
    "rewritten": ("ADD c float DEFAULT random()", "column c was added, and on_schema_change says add: stop"),
    "dropped": ("DROP b", "column b was dropped, and on_schema_change says drop: stop"),
    "retyped": ("ALTER a TYPE bigint", "the type of column a was changed, and on_schema_change says retype: stop"),
    "widened": ("ALTER n TYPE numeric(9,2)", "column n was widened, and on_schema_change says retype: stop"),
    "several": ("DROP b, ADD c int", "on_schema_change says"),
    "under_root": ("ADD c int", "column c was added, and on_schema_change says add: stop"),
}
# these are none of the three
FOLLOWED = {"renamed": "RENAME b TO c", "indexed": "ADD UNIQUE (a, id)"}
TABLES = in_public([*REFUSED, *FOLLOWED])


def made(database: Database, lake: Path, engine: MergeEngine = "auto") -> Pipeline:
    for name in (*REFUSED, *FOLLOWED):
        columns = "(id int PRIMARY KEY, a int, b int, n numeric(5,2))"
        database.execute(
            f"CREATE TABLE {name} {columns}" + (" PARTITION BY RANGE (id)" if name == "under_root" else ""),
            *(
                ["CREATE TABLE leaf PARTITION OF under_root FOR VALUES FROM (0) TO (1000)"]
                if name == "under_root"
                else []
            ),
            f"INSERT INTO {name} SELECT g, g, -g, g FROM generate_series(1, 5) g",
        )
    return pipeline_of(database, lake, *map(str, TABLES), engine=engine)


def altered(database: Database) -> None:
    """A change of rows before and after each, in windows of their own."""
    for name, ddl in {**{name: ddl for name, (ddl, _) in REFUSED.items()}, **FOLLOWED}.items():
        database.execute(f"ALTER TABLE {name} {ddl}", f"UPDATE {name} SET a = 0 WHERE id = 2")


def columns(pipeline: Pipeline, name: str) -> list[str]:
    return [field.name for field in DeltaTable(pipeline.lake.table(QualifiedName("public", name))).schema().fields]


def values(spark: SparkSession, pipeline: Pipeline, name: str) -> dict[int, int]:
    rows = spark.read.format("delta").load(pipeline.lake.table(QualifiedName("public", name))).collect()
    return {row["id"]: row["a"] for row in rows}


@pytest.mark.parametrize("engine", ["auto", pytest.param("spark", marks=pytest.mark.nightly)])
def test_a_table_stops_before_the_change_until_it_is_accepted(
    spark: SparkSession, database: Database, tmp_path: Path, engine: MergeEngine
) -> None:
    following = made(database, tmp_path / "lake", engine)
    pipeline = replace(following, on_schema_change=STOP)
    synced(spark, pipeline)
    for name in (*REFUSED, *FOLLOWED):
        database.execute(f"UPDATE {name} SET a = 100 WHERE id = 1")
    capture(pipeline)
    altered(database)
    for _ in range(2):
        report = sync(pipeline, lambda: spark)
        errors = {table.name.relname: table.error for table in report.tables if table.error}
        assert errors.keys() == REFUSED.keys()
        for name, error in errors.items():
            assert isinstance(error, RefusedChangeError)
            assert f"public.{name} stops before window " in error.what
            assert REFUSED[name][1] in error.what
            assert f"postgres-cdc snapshot --table 'public.{name}'" in error.hint
            assert columns(pipeline, name) == ["id", "a", "b", "n"]
            assert values(spark, pipeline, name) == {1: 100, 2: 2, 3: 3, 4: 4, 5: 5}  # the window before is there
        assert (
            "drop: follow, add: follow" in errors["several"].hint
            or "add: follow, drop: follow" in errors["several"].hint
        )
        assert report.snapshots == ()
        assert_equal(spark, pipeline, *in_public(FOLLOWED))
    shown = {table.name.relname: table.error for table in pipeline_status(pipeline).tables if table.error}
    assert {name: type(error) for name, error in shown.items()} == dict.fromkeys(REFUSED, RefusedChangeError)

    by_hand = in_public(["added", "dropped", "retyped"])
    assert all(taken.error is None for taken in snapshot(Run(pipeline, lambda: spark), by_hand))
    assert set(read_again(synced(spark, following))) == {"rewritten", "under_root"}
    assert_equal(spark, following, *TABLES)
    database.execute(*(f"UPDATE {name} SET a = 50 WHERE id = 3" for name in (*REFUSED, *FOLLOWED)))
    synced(spark, pipeline)  # what was accepted is not refused again
    assert_equal(spark, pipeline, *TABLES)


def test_no_snapshot_by_itself_brings_what_is_refused(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    """Here the table needs a re-snapshot for a reason of its own, in a window before the refused change."""
    name = QualifiedName("public", "orders")
    database.execute("CREATE TABLE orders (id int PRIMARY KEY, a int)", "INSERT INTO orders VALUES (1, 1)")
    following = pipeline_of(database, tmp_path / "lake", str(name))
    pipeline = replace(following, tables=(replace((following.tables or ())[0], on_schema_change=SchemaPolicy("stop")),))
    synced(spark, pipeline)
    database.execute("ALTER TABLE orders ALTER a TYPE int USING a + 1")
    capture(pipeline)
    database.execute("ALTER TABLE orders ADD b int")
    (error,) = sync(pipeline, lambda: spark).errors
    assert isinstance(error, RefusedChangeError)
    assert "it was rewritten by DDL" in error.what
    assert "column b was added" in error.what
    assert columns(pipeline, "orders") == ["id", "a"]
    synced(spark, following)
    assert_equal(spark, following, name)
    database.execute("ALTER TABLE orders ALTER a TYPE int USING a + 1")
    assert set(read_again(synced(spark, pipeline))) == {"orders"}  # a table that has its columns is read again
    assert_equal(spark, pipeline, name)


def test_with_test_decoding(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    name = QualifiedName("public", "orders")
    database.execute("CREATE TABLE orders (id int PRIMARY KEY, a int)", "INSERT INTO orders VALUES (1, 1)")
    following = pipeline_of(database, tmp_path / "lake", str(name), plugin="test_decoding")
    pipeline = replace(following, on_schema_change=STOP)
    synced(spark, pipeline)
    database.execute("ALTER TABLE orders ADD b int", "INSERT INTO orders VALUES (2, 2, 2)")
    (error,) = sync(pipeline, lambda: spark).errors
    assert isinstance(error, RefusedChangeError)
    assert columns(pipeline, "orders") == ["id", "a"]
    synced(spark, following)
    assert_equal(spark, following, name)


def test_in_the_other_modes(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    """The rows of before are there, and those of after come when the change is accepted."""
    modes: tuple[Mode, ...] = ("soft_delete", "history", "append")
    database.execute(
        *(f"CREATE TABLE {mode} (id int PRIMARY KEY, a int)" for mode in modes),
        *(f"INSERT INTO {mode} VALUES (1, 1)" for mode in modes),
    )
    following = pipeline_of(database, tmp_path / "lake", *modes)
    following = replace(
        following,
        tables=tuple(replace(table, mode=mode) for table, mode in zip(following.tables or (), modes, strict=True)),
    )
    pipeline = replace(following, on_schema_change=STOP)
    synced(spark, pipeline)
    database.execute(*(f"INSERT INTO {mode} VALUES (2, 2)" for mode in modes))
    capture(pipeline)
    database.execute(*(f"ALTER TABLE {mode} ADD c int; INSERT INTO {mode} VALUES (3, 3, 3)" for mode in modes))
    errors = sync(pipeline, lambda: spark).errors
    assert [type(error) for error in errors] == [RefusedChangeError] * 3
    for mode in modes:
        assert "c" not in columns(pipeline, mode)
        assert values(spark, pipeline, mode) == {1: 1, 2: 2}
    assert read_again(synced(spark, following)) == {}
    for mode in modes:
        assert "c" in columns(pipeline, mode)
        assert values(spark, pipeline, mode) == {1: 1, 2: 2, 3: 3}
