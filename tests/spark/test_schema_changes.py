"""DDL that the lake follows in place: between two rows, between two windows, without a row; no table is read again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.apply.apply import apply
from spark_jobs.apply.apply_tables import apply_table
from spark_jobs.apply.plan import plan_apply
from spark_jobs.capture.capture import capture
from spark_jobs.options.write_limits import WriteLimits
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.writers.table_features import MAPPED_NAMES
from spark_jobs.writers.with_spark.delta_table import add_features, table_columns
from tests.at_night import at_night
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import fresh_database
from tests.spark.altered_tables import assert_equal, read_again, synced

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

# table → what is done to it between two syncs; all begin as (id int PRIMARY KEY, a text, b int, doc text, z text)
FOLLOWED: dict[str, tuple[str, ...]] = {
    "altered": (
        "UPDATE {t} SET a = 'before' WHERE id < 4",
        "ALTER TABLE {t} DROP b",
        "UPDATE {t} SET a = 'between' WHERE id IN (3, 5)",
        'ALTER TABLE {t} RENAME a TO "Ä `x` ""y"" .{{}}"',
        "INSERT INTO {t} (id, z) VALUES (100, 'after')",
        "ALTER TABLE {t} ADD c numeric(5,2)",
        "UPDATE {t} SET c = 1.5 WHERE id IN (1, 6)",
    ),
    "defaulted": (
        "UPDATE {t} SET b = 0 WHERE id = 1",
        "ALTER TABLE {t} ADD c text DEFAULT 'it''s \"{{x}}\"', ADD d bytea DEFAULT '\\x0001'",
        "ALTER TABLE {t} ADD e date DEFAULT '2024-2-29'",
        "UPDATE {t} SET c = 'other' WHERE id IN (2, 3)",
        "INSERT INTO {t} (id) VALUES (100)",
        "DELETE FROM {t} WHERE id = 4",
        "ALTER TABLE {t} ALTER c SET DEFAULT 'later', ALTER d DROP DEFAULT",
        "INSERT INTO {t} (id) VALUES (101)",
    ),
    "without_a_row": ("ALTER TABLE {t} ADD c int NOT NULL DEFAULT 7, DROP z",),
    "in_one_transaction": (
        "BEGIN",
        "ALTER TABLE {t} ADD rolled_back int DEFAULT 7",
        "UPDATE {t} SET rolled_back = 8",
        "ROLLBACK",
        "BEGIN",
        "UPDATE {t} SET a = 'before' WHERE id < 4",
        "SAVEPOINT s",
        "ALTER TABLE {t} DROP a",
        "UPDATE {t} SET b = 8",
        "ROLLBACK TO s",
        "ALTER TABLE {t} ADD c int DEFAULT 7",
        "UPDATE {t} SET a = 'after' WHERE id IN (3, 5)",
        "COMMIT",
    ),
    "swapped": (
        "UPDATE {t} SET a = 'before' WHERE id < 4",
        "BEGIN",
        "ALTER TABLE {t} RENAME a TO x",
        "ALTER TABLE {t} RENAME z TO a",
        "ALTER TABLE {t} RENAME x TO z",
        'ALTER TABLE {t} RENAME b TO "B"',
        "COMMIT",
        "UPDATE {t} SET a = 'after' WHERE id IN (3, 5)",
    ),
    "handed_on": (
        "UPDATE {t} SET a = 'before' WHERE id < 4",
        "BEGIN",
        "ALTER TABLE {t} RENAME z TO y",
        "ALTER TABLE {t} RENAME doc TO z",
        "ALTER TABLE {t} RENAME a TO doc",
        "ALTER TABLE {t} RENAME b TO a",
        "COMMIT",
        "UPDATE {t} SET doc = 'after', a = 9 WHERE id IN (3, 5)",
    ),
    "key_renamed": (
        "UPDATE {t} SET a = 'before' WHERE id < 4",
        "ALTER TABLE {t} RENAME id TO number",
        "UPDATE {t} SET number = 200 WHERE number = 3",
        "DELETE FROM {t} WHERE number = 5",
    ),
    "under_full": (
        "UPDATE {t} SET a = 'before' WHERE id < 4",
        "ALTER TABLE {t} ADD c int DEFAULT 7",
        "UPDATE {t} SET a = 'after' WHERE id IN (3, 5)",
        "DELETE FROM {t} WHERE id = 1",
    ),
    "added_again": (
        "UPDATE {t} SET a = 'before' WHERE id < 4",
        "ALTER TABLE {t} DROP a",
        "ALTER TABLE {t} ADD a text",
        "UPDATE {t} SET a = 'after' WHERE id IN (3, 5)",
    ),
    "expanded_and_contracted": (
        "UPDATE {t} SET z = 'before' WHERE id < 4",
        "ALTER TABLE {t} ADD d text",
        "ALTER TABLE {t} DROP z",
        "UPDATE {t} SET d = 'after' WHERE id = 5",
    ),
    "truncated": (
        "UPDATE {t} SET a = 'before'",
        "TRUNCATE {t}",
        "INSERT INTO {t} VALUES (1, 'x')",
        "ALTER TABLE {t} DROP b",
        "INSERT INTO {t} VALUES (2, 'y')",
    ),
}
# in these nobody can say which column a row of the log means, or what rows from before hold: they are read again
READ_AGAIN: dict[str, tuple[str, ...]] = {
    "last_added_again": (
        "UPDATE {t} SET z = 'before' WHERE id < 4",
        "ALTER TABLE {t} DROP z",
        "ALTER TABLE {t} ADD z text",
        "UPDATE {t} SET z = 'after' WHERE id IN (3, 5)",
    ),
    "name_taken_over": (
        "UPDATE {t} SET z = 'before' WHERE id < 4",
        "ALTER TABLE {t} DROP z",
        "ALTER TABLE {t} ADD z text",
        "UPDATE {t} SET z = 'after' WHERE id IN (3, 5)",
        "ALTER TABLE {t} RENAME z TO d",
    ),
    "name_taken_for_a_time": (
        "UPDATE {t} SET z = 'before' WHERE id < 4",
        "ALTER TABLE {t} DROP z",
        "ALTER TABLE {t} ADD z text",
        "UPDATE {t} SET z = 'after' WHERE id IN (3, 5)",
        "ALTER TABLE {t} DROP z",
    ),
    "name_handed_to_another": (
        "ALTER TABLE {t} ADD d text DEFAULT 'd'",
        "UPDATE {t} SET d = 'before' WHERE id < 4",
        "ALTER TABLE {t} RENAME d TO e",
        "ALTER TABLE {t} ADD d text DEFAULT 'later'",
    ),
    "added_dropped_and_added": (
        "ALTER TABLE {t} ADD d text DEFAULT 'd'",
        "UPDATE {t} SET d = 'before' WHERE id < 4",
        "ALTER TABLE {t} DROP d",
        "ALTER TABLE {t} ADD d text DEFAULT 'later'",
        "UPDATE {t} SET d = 'after' WHERE id IN (3, 5)",
    ),
    "seen_between": (
        "ALTER TABLE {t} RENAME a TO x",
        "UPDATE {t} SET x = 'between' WHERE id < 4",
        "ALTER TABLE {t} RENAME x TO y",
    ),
    "renamed_and_dropped": (
        "ALTER TABLE {t} RENAME a TO x",
        "UPDATE {t} SET x = 'between' WHERE id < 4",
        "ALTER TABLE {t} DROP b",
        "UPDATE {t} SET x = 'after' WHERE id = 3",
    ),
    "default_rewritten": (
        "ALTER TABLE {t} ADD c int DEFAULT 7",
        "VACUUM FULL {t}",
        "UPDATE {t} SET b = 1 WHERE id = 1",
    ),
}
_BIG = "(SELECT string_agg(md5(n::text || g), '') FROM generate_series(1, 100) n)"


def _created(table: str) -> tuple[str, ...]:
    return (
        f"CREATE TABLE {table} (id int PRIMARY KEY, a text, b int, doc text, z text)",
        f"ALTER TABLE {table} ALTER doc SET STORAGE EXTERNAL",
        f"INSERT INTO {table} SELECT g, 'a' || g, g, {_BIG}, 'z' || g FROM generate_series(1, 9) g",
    )


def _columns(spark: SparkSession, path: str) -> list[tuple[str, int | None]]:
    return [(column.name, column.attnum) for column in table_columns(spark, path)]


def _noted(spark: SparkSession, path: str) -> list[list[str]]:
    """What the commits say of columns, oldest first."""
    history = spark.sql(f"DESCRIBE HISTORY delta.`{path}`").orderBy("version").collect()
    noted: list[dict[str, Any]] = [json.loads(row["userMetadata"] or "{}") for row in history]
    return [entry["columns"] for entry in noted if entry.get("columns")]


# by day another of these tables shows what each of them is made of
BY_NIGHT = ("in_one_transaction", "handed_on", "expanded_and_contracted", "last_added_again", "seen_between")
BY_DAY = tuple(table for table in (*FOLLOWED, *READ_AGAIN) if table not in BY_NIGHT)


@pytest.mark.parametrize("chosen", [BY_DAY, at_night((*FOLLOWED, *READ_AGAIN))], ids=["by day", "all"])
def test_ddl_is_followed_in_place(
    spark: SparkSession, postgres_15: PostgresServer, tmp_path: Path, chosen: tuple[str, ...]
) -> None:
    names = {table: QualifiedName("public", table) for table in chosen}
    with fresh_database(postgres_15) as database:
        for table in names:
            database.execute(*_created(table))
        database.execute("ALTER TABLE under_full REPLICA IDENTITY FULL")
        pipeline = pipeline_of(database, tmp_path / "lake", *map(str, names.values()))
        synced(spark, pipeline)
        # a first look at the catalogue
        database.execute("INSERT INTO altered (id) VALUES (99)")
        assert read_again(synced(spark, pipeline)) == {}
        for table, statements in {**FOLLOWED, **READ_AGAIN}.items():
            if table in chosen:
                database.execute(*(statement.format(t=table) for statement in statements))
        report = synced(spark, pipeline)
        assert set(read_again(report)) == set(READ_AGAIN) & set(chosen)
        assert_equal(spark, pipeline, *names.values())
        followed = {applied.name.relname: applied.columns for applied in report.tables if applied.columns}
        assert set(followed) == set(FOLLOWED) & set(chosen)
        assert followed["defaulted"] == ("c string was added", "d binary was added", "e date was added")
        assert sorted(followed["swapped"]) == ["a was renamed to z", "b was renamed to B", "z was renamed to a"]
        assert _noted(spark, pipeline.lake.table(names["truncated"])) == [["b was dropped"]]
        assert ("c", 6) in _columns(spark, pipeline.lake.table(names["without_a_row"]))
        # and they go on
        for table in ("altered", "defaulted", "swapped"):
            database.execute(f"INSERT INTO {table} (id) VALUES (300)", f"DELETE FROM {table} WHERE id = 2")
        assert read_again(synced(spark, pipeline)) == {}
        assert_equal(spark, pipeline, *names.values())


def test_a_process_that_is_killed_between_two_statements(
    spark: SparkSession, postgres_15: PostgresServer, tmp_path: Path
) -> None:
    """What is left to do is found by attribute number, whatever the columns are called in between."""
    orders = QualifiedName("public", "orders")
    with fresh_database(postgres_15) as database:
        database.execute(*_created("orders"))
        pipeline = pipeline_of(database, tmp_path / "lake", "public.orders")
        synced(spark, pipeline)
        database.execute("UPDATE orders SET b = 0 WHERE id = 1")
        synced(spark, pipeline)
        database.execute(
            "BEGIN",
            "ALTER TABLE orders RENAME a TO x",
            "ALTER TABLE orders RENAME z TO a",
            "ALTER TABLE orders RENAME x TO z",
            "ALTER TABLE orders DROP b, ADD c int",
            "COMMIT",
            "UPDATE orders SET c = 5 WHERE id = 3",
        )
        capture(pipeline)
        table = f"delta.`{pipeline.lake.table(orders)}`"
        add_features(spark, pipeline.lake.table(orders), MAPPED_NAMES)
        spark.sql(f"ALTER TABLE {table} DROP COLUMNS (b)")
        spark.sql(f"ALTER TABLE {table} RENAME COLUMN a TO `pg_attribute.2`")
        spark.sql(f"ALTER TABLE {table} RENAME COLUMN z TO a")
        (applied,) = apply(Run(pipeline, lambda: spark)).tables
        assert applied.error is None
        assert_equal(spark, pipeline, orders)


def test_a_column_is_followed_while_capture_is_ahead(
    spark: SparkSession, postgres_15: PostgresServer, tmp_path: Path
) -> None:
    """Windows are landed one after the other, with DDL between them; one apply covers them all."""
    orders = QualifiedName("public", "orders")
    with fresh_database(postgres_15) as database:
        database.execute(*_created("orders"))
        pipeline = pipeline_of(database, tmp_path / "lake", "public.orders")
        synced(spark, pipeline)
        for statement in (
            "UPDATE orders SET b = 0 WHERE id = 1",
            "ALTER TABLE orders RENAME a TO first",
            "UPDATE orders SET first = 'x' WHERE id = 2",
            "ALTER TABLE orders ADD c int DEFAULT 7",
            "UPDATE orders SET c = 8 WHERE id = 2",
            "ALTER TABLE orders DROP z",
            "UPDATE orders SET b = 9 WHERE id = 4",
            "ALTER TABLE orders RENAME first TO a",
            "UPDATE orders SET a = 'y' WHERE id = 5",
        ):
            database.execute(statement)
            capture(pipeline)
        # where the range is large: executors decode it
        large = replace(pipeline, writes=WriteLimits(on_driver_bytes=0))
        (work,) = plan_apply(Run(large, lambda: spark)).work
        applied = apply_table(work)
        assert (applied.error, applied.columns) == (None, ("z was dropped", "c int was added"))
        assert_equal(spark, pipeline, orders)
