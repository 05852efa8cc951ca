"""A column that gets another type, in tables that keep what was: with more digits every row that they keep is still
there, and where the new type does not hold an earlier value, they say so and stay as they are."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import pytest

from spark_jobs.configuration import Table
from spark_jobs.errors import UnrepresentableError
from spark_jobs.options.table_mode import Mode
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.sync import sync
from spark_jobs.verify.verify import verify
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.row_compare import lake_rows
from tests.fixtures.servers import Database
from tests.spark.altered_tables import synced

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

MODES: tuple[Mode, ...] = get_args(Mode)
# rows that each mode holds in the end, of five that were there, two that came, one that changed and one that went
HELD = {"mirror": 6, "soft_delete": 7, "history": 8, "append": 5 + 4}


@pytest.mark.nightly
def test_every_mode_keeps_its_rows(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    names = {mode: QualifiedName("public", f"in_{mode}") for mode in MODES}
    for name in names.values():
        database.execute(
            f"CREATE TABLE {name} (id int PRIMARY KEY, a numeric(6,2))",
            f"INSERT INTO {name} SELECT g, g + 0.12 FROM generate_series(1, 5) g",
        )
    made = pipeline_of(database, tmp_path / "lake", *map(str, names.values()))
    pipeline = replace(made, tables=tuple(Table(name, mode) for mode, name in names.items()))
    synced(spark, pipeline)
    for name in names.values():
        database.execute(f"DELETE FROM {name} WHERE id = 5", f"INSERT INTO {name} VALUES (6, 9999.99)")
    synced(spark, pipeline)
    for name in names.values():
        database.execute(
            f"ALTER TABLE {name} ALTER a TYPE numeric(20,2), ADD c int DEFAULT 7",
            f"UPDATE {name} SET a = -123456789012345678.12 WHERE id = 1",
            f"INSERT INTO {name} VALUES (7, NULL)",
        )
    report = synced(spark, pipeline)
    assert report.snapshots == ()
    followed = {applied.name.relname: applied.columns for applied in report.tables}
    assert set(followed.values()) == {("c int was added", "a decimal(6,2) was widened to decimal(20,2)")}
    held = {mode: spark.read.format("delta").load(pipeline.lake.table(name)) for mode, name in names.items()}
    assert {mode: table.count() for mode, table in held.items()} == HELD
    assert {dict(table.dtypes)["a"] for table in held.values()} == {"decimal(20,2)"}
    # what was appended, or is gone from the source, never had the new column
    assert held["append"].where("c IS NOT NULL").count() == 2
    assert held["soft_delete"].where("c IS NULL").count() == 1
    verdicts = {table.name.relname: table.verdict for table in verify(pipeline, lambda: spark).tables}
    assert verdicts == {f"in_{mode}": "equal" for mode in MODES if mode != "append"}


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ("text", "bigint", "was string, and bigint does not hold all values of earlier rows"),
        ("date", "bigint", "was date, and bigint does not hold all values of earlier rows"),
    ],
)
def test_an_earlier_value_that_the_new_type_does_not_hold(
    spark: SparkSession, database: Database, tmp_path: Path, before: str, now: str, said: str
) -> None:
    """Its hint names two ways out: both end it."""
    kept = {mode: QualifiedName("public", f"in_{mode}") for mode in MODES if mode != "mirror"}
    for name in kept.values():
        database.execute(
            f"CREATE TABLE {name} (id int PRIMARY KEY, other int, a {before})",
            f"INSERT INTO {name} VALUES (1, 1, '2026-01-31'), (2, 2, NULL)",
        )
    pipeline = pipeline_of(database, tmp_path / "lake")
    pipeline = replace(pipeline, tables=tuple(Table(name, mode) for mode, name in kept.items()))
    synced(spark, pipeline)
    for name in kept.values():
        database.execute(f"ALTER TABLE {name} ALTER a TYPE {now} USING id, ALTER other TYPE bigint")
    errors = sync(pipeline, lambda: spark).errors
    assert len(errors) == len(kept)
    for name, error in zip(kept.values(), errors, strict=True):
        assert isinstance(error, UnrepresentableError)
        assert error.what.startswith(f"{name}: ")
        assert error.what.endswith(f"column a {said}")

    back, moved, _ = kept.values()
    database.execute(f"ALTER TABLE {back} ALTER a TYPE {before} USING NULL")
    shutil.move(pipeline.lake.table(moved), tmp_path / "moved")
    (left,) = sync(pipeline, lambda: spark).errors
    assert "in_append" in left.what
    assert verify(pipeline, lambda: spark, [back, moved]).problems == ()


def test_earlier_bytes_become_what_postgres_prints(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    kept = {mode: QualifiedName("public", f"in_{mode}") for mode in MODES if mode != "mirror"}
    for name in kept.values():
        database.execute(
            f"CREATE TABLE {name} (id int PRIMARY KEY, a bytea)",
            f"INSERT INTO {name} VALUES (1, '\\x00ff'), (2, '\\xc3'), (3, NULL)",
        )
    pipeline = pipeline_of(database, tmp_path / "lake")
    pipeline = replace(pipeline, tables=tuple(Table(name, mode) for mode, name in kept.items()))
    synced(spark, pipeline)
    for name in kept.values():
        database.execute(
            f"DELETE FROM {name} WHERE id = 1",
            f"ALTER TABLE {name} ALTER a TYPE text USING a::text",
            f"UPDATE {name} SET a = 'other' WHERE id = 2",
        )
    synced(spark, pipeline)
    synced(spark, pipeline)
    for name in kept.values():
        rows = lake_rows(spark, pipeline.lake.table(name)).to_pylist()
        assert {row["a"] for row in rows if row["id"] == 1} == {"\\x00ff"}
    assert verify(pipeline, lambda: spark).problems == ()


# what PostgreSQL rounds, from which type, to which
ROUNDED = (
    ("float8", "int", "0.5 1.5 2.5 -0.5 -1.5 -2.5 2.7 -2.7 2147483647.4 -2147483648.5 0.49999999999999994"),
    ("float8", "bigint", "2.5 -3.5 4503599627370497.5 9007199254740993"),
    ("real", "int", "0.5 1.5 2.5 -2.5 16777217 2147483520"),
    ("real", "smallint", "32767.4 -32768.5"),
    ("numeric(12,2)", "int", "0.5 1.5 2.5 -0.5 -1.5 -2.5 2.49 2147483647.49 -2147483648.49"),
    ("numeric(38,20)", "bigint", "2.5 -2.5 123456789012345678.49999999999999999999"),
    ("numeric(12,4)", "numeric(10,2)", "0.125 -0.125 2.345 -2.345 0.1249"),
    ("float8", "numeric(20,2)", "0.125 2.345 123456789012345.67 2.675 -1e16 1e-20"),
    ("float8", "numeric(30,17)", "0.1 0.30000000000000004 123456.123456789012"),
    ("real", "numeric(20,8)", "0.1 1234567 16777216 -0.00012345678"),
    ("numeric(30,10)", "float8", "0.1 12345678901234567890.0123456789 -2.5"),
    ("numeric(30,10)", "real", "0.1 16777217 -12345678.9"),
    ("bigint", "real", "16777217 9007199254740993 -9223372036854775807"),
    ("bigint", "float8", "9007199254740993 -9223372036854775807"),
    ("float8", "real", "0.1 16777217 1e38 -1e-37 Infinity NaN 0"),
    ("timestamp", "date", "1969-12-31T23:59:59.999999 2026-01-01T00:00:00"),
    ("date", "timestamp", "1969-12-31 2026-01-01"),
)


def test_earlier_numbers_become_what_postgres_makes_of_them(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    """Its own cast is the oracle. So no version ends because of the new type."""
    names = [QualifiedName("public", f"t{place}") for place in range(len(ROUNDED))]
    for name, (before, _, values) in zip(names, ROUNDED, strict=True):
        rows = ", ".join(f"({n}, '{value}')" for n, value in enumerate(values.split()))
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, a {before})", f"INSERT INTO {name} VALUES {rows}")
    pipeline = pipeline_of(database, tmp_path / "lake")
    pipeline = replace(pipeline, tables=tuple(Table(name, "history") for name in names))
    synced(spark, pipeline)
    for name, (_, now, _) in zip(names, ROUNDED, strict=True):
        database.execute(f"CREATE TABLE {name}_all AS SELECT id, a::{now} AS a FROM {name}")
        database.execute(f"DELETE FROM {name} WHERE id = 1", f"ALTER TABLE {name} ALTER a TYPE {now}")
    synced(spark, pipeline)
    for name, (_, now, _) in zip(names, ROUNDED, strict=True):
        rows = lake_rows(spark, pipeline.lake.table(name)).to_pylist()
        with database.connect() as connection:
            shown = "a::float8" if now == "real" else "a"  # as Python has it
            expected = connection.execute(f"SELECT id, {shown} FROM {name}_all ORDER BY id").fetchall()
        found = sorted((row["id"], str(row["a"])) for row in rows)
        assert found == [(key, str(value)) for key, value in expected], name


def test_earlier_numbers_that_postgres_refuses_to_round(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    refused = (
        ("float8", "int", "2147483647.5"),
        ("numeric(12,1)", "smallint", "32767.5"),
        ("float8", "real", "1e300"),
        ("float8", "real", "1e-300"),
        ("float8", "numeric(4,1)", "999.95"),
        ("real", "bigint", "NaN"),
    )
    names = [QualifiedName("public", f"t{place}") for place in range(len(refused))]
    for name, (before, _, value) in zip(names, refused, strict=True):
        database.execute(
            f"CREATE TABLE {name} (id int PRIMARY KEY, a {before})", f"INSERT INTO {name} VALUES (1, '{value}')"
        )
    pipeline = pipeline_of(database, tmp_path / "lake")
    pipeline = replace(pipeline, tables=tuple(Table(name, "history") for name in names))
    synced(spark, pipeline)
    for name, (_, now, _) in zip(names, refused, strict=True):
        database.execute(f"DELETE FROM {name}", f"ALTER TABLE {name} ALTER a TYPE {now}")
    errors = sync(pipeline, lambda: spark).errors
    assert ["does not hold all values of earlier rows" in error.what for error in errors] == [True] * len(refused)
