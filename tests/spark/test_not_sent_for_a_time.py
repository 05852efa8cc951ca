"""A table whose changes are not sent for a time: unlogged, in another schema, or an operation is not published."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.sync import sync
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database, fresh_database
from tests.spark.altered_tables import assert_equal, read_again, synced

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

ORDERS, ITEMS = QualifiedName("public", "orders"), QualifiedName("public", "items")


def test_with_test_decoding_names_and_keys_count_too(
    spark: SparkSession, postgres_15: PostgresServer, tmp_path: Path
) -> None:
    """A table in another schema for a time, a key of fewer columns, leaves with another identity than their root's."""
    with fresh_database(postgres_15) as database:
        database.execute(
            "CREATE SCHEMA away",
            "CREATE TABLE moved (id int PRIMARY KEY, t text)",
            "CREATE TABLE fewer (id int, t text, PRIMARY KEY (id, t))",
            "INSERT INTO moved VALUES (1, 'x'), (2, 'x')",
            "INSERT INTO fewer VALUES (1, 'x'), (2, 'x')",
            "CREATE TABLE mixed (id int PRIMARY KEY, t text, doc text) PARTITION BY RANGE (id)",
            "ALTER TABLE mixed ALTER doc SET STORAGE EXTERNAL",
            "CREATE TABLE mixed_1 PARTITION OF mixed FOR VALUES FROM (0) TO (10)",
            "ALTER TABLE ONLY mixed REPLICA IDENTITY FULL",
            "INSERT INTO mixed SELECT g, 'x', repeat('x', 9000) FROM generate_series(0, 4) g",
        )
        names = tuple(QualifiedName("public", name) for name in ("moved", "fewer", "mixed"))
        pipeline = pipeline_of(database, tmp_path / "lake", *map(str, names), plugin="test_decoding")
        synced(spark, pipeline)
        database.execute(
            "ALTER TABLE moved SET SCHEMA away",
            "DELETE FROM away.moved WHERE id = 1",
            "ALTER TABLE away.moved SET SCHEMA public",
            "ALTER TABLE fewer DROP CONSTRAINT fewer_pkey, ADD PRIMARY KEY (id)",
            "UPDATE fewer SET t = 'y' WHERE id = 1",
            "UPDATE mixed SET id = id + 5 WHERE id < 2",  # keeps the documents
            "UPDATE mixed SET t = 'y' WHERE id = 4",
            "DELETE FROM mixed WHERE id = 3",
        )
        assert set(read_again(synced(spark, pipeline))) == {"moved", "fewer"}
        assert_equal(spark, pipeline, *names)


def test_a_table_that_is_unlogged_stops_until_it_is_logged_again(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, a text)",
        "CREATE TABLE items (id int PRIMARY KEY, sku text)",
        "INSERT INTO orders VALUES (1, 'x')",
        f"CREATE PUBLICATION {database.name} FOR ALL TABLES",
    )
    pipeline = pipeline_of(database, tmp_path / "lake", "public.orders", "public.items")
    synced(spark, pipeline)
    database.execute("ALTER TABLE orders SET UNLOGGED", "INSERT INTO orders VALUES (2, 'unseen')")
    database.execute("INSERT INTO items VALUES (1, 'x')")
    report = sync(pipeline, lambda: spark)
    (error,) = report.errors
    assert str(error).startswith("table public.orders is unlogged: its changes are not in the WAL: ALTER TABLE")
    assert_equal(spark, pipeline, ITEMS)
    database.execute("ALTER TABLE orders SET LOGGED", "INSERT INTO orders VALUES (3, 'x')")
    assert set(read_again(synced(spark, pipeline))) == {"orders"}
    assert_equal(spark, pipeline, ORDERS, ITEMS)


def test_a_table_that_leaves_its_published_schema_and_comes_back(
    spark: SparkSession, postgres_15: PostgresServer, tmp_path: Path
) -> None:
    with fresh_database(postgres_15) as database:
        database.execute(
            "CREATE SCHEMA away",
            "CREATE TABLE orders (id int PRIMARY KEY, a text)",
            "CREATE TABLE items (id int PRIMARY KEY, sku text)",
            "INSERT INTO orders VALUES (1, 'x'), (2, 'x')",
            f"CREATE PUBLICATION {database.name} FOR TABLES IN SCHEMA public",
        )
        pipeline = pipeline_of(database, tmp_path / "lake")
        synced(spark, pipeline)
        database.execute("INSERT INTO items VALUES (1, 'x')")
        synced(spark, pipeline)
        database.execute(
            "ALTER TABLE orders SET SCHEMA away", "DELETE FROM away.orders", "ALTER TABLE away.orders SET SCHEMA public"
        )
        assert set(read_again(synced(spark, pipeline))) == {"orders"}
        assert_equal(spark, pipeline, ORDERS, ITEMS)


def test_a_publication_that_left_out_operations_for_a_time(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, a int)",
        "CREATE TABLE items (id int PRIMARY KEY, sku text)",
        "INSERT INTO orders SELECT g, g FROM generate_series(1, 20) g",
    )
    pipeline = pipeline_of(database, tmp_path / "lake", "public.orders", "public.items")
    synced(spark, pipeline)
    database.execute("INSERT INTO items VALUES (1, 'x')")
    synced(spark, pipeline)
    database.execute(
        f"ALTER PUBLICATION {database.name} SET (publish = 'insert')",
        "DELETE FROM orders WHERE id < 5",
        f"ALTER PUBLICATION {database.name} SET (publish = 'insert, update, delete, truncate')",
    )
    assert set(read_again(synced(spark, pipeline))) == {"orders", "items"}
    assert_equal(spark, pipeline, ORDERS, ITEMS)


def test_a_partition_that_is_published_by_the_tables_above_it_alone(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    """It is not published while it is detached, or a table above it, or while that is in another schema."""
    database.execute(
        "CREATE SCHEMA shown",
        "CREATE SCHEMA away",
        "CREATE TABLE shown.root (id int PRIMARY KEY, t text) PARTITION BY RANGE (id)",
        "CREATE TABLE between PARTITION OF shown.root FOR VALUES FROM (0) TO (20) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF between FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE high PARTITION OF between FOR VALUES FROM (10) TO (20)",
        "INSERT INTO shown.root SELECT g, 'x' FROM generate_series(0, 19) g",
        f"CREATE PUBLICATION {database.name} FOR TABLES IN SCHEMA shown",
    )
    pipeline = pipeline_of(database, tmp_path / "lake")
    synced(spark, pipeline)
    low, high = QualifiedName("public", "low"), QualifiedName("public", "high")
    detached = (
        "ALTER TABLE between DETACH PARTITION low",
        "DELETE FROM low WHERE id = 1",
        "ALTER TABLE between ATTACH PARTITION low FOR VALUES FROM (0) TO (10)",
    )
    detached_above = (
        "ALTER TABLE shown.root DETACH PARTITION between",
        "UPDATE low SET t = 'y' WHERE id = 2",
        "ALTER TABLE shown.root ATTACH PARTITION between FOR VALUES FROM (0) TO (20)",
    )
    moved_above = (
        "ALTER TABLE shown.root SET SCHEMA away",
        "UPDATE away.root SET t = 'z' WHERE id = 13",
        "ALTER TABLE away.root SET SCHEMA shown",
    )
    for ddl, changed in ((detached, {"low"}), (detached_above, {"low", "high"}), (moved_above, {"low", "high"})):
        database.execute(*ddl)
        assert set(read_again(synced(spark, pipeline))) == changed
        assert_equal(spark, pipeline, low, high)
