"""What PostgreSQL changes without sending it: seen in the catalogue, read again by itself, and equal in the end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.capture.capture import capture
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import NeedsSnapshotError, SchemaChangeError
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.status import pipeline_status
from spark_jobs.sync import SyncReport, apply, snapshot, sync
from spark_jobs.verify.row_compare import compare
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database, fresh_database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

PARTED = ("parts", "attached", "detached", "dropped", "truncated", "returned", "unlogged", "mixed", "moved_key", "calm")
PLAIN = {
    "swapped": "a int, b int",
    "using_same_type": "a int",
    "blanks": "a varchar(9)",
    "digits": "a numeric(12,4)",
    "instants": "a timestamp(6)",
    "documents": "a json",
    "added_again": "a text",
    "defaulted": "a text",
    "moods": "a mood",
    "places": "a place",
    "gone_for_a_time": "a text",
    "created_again": "a text",
    "widened": "a int",
    "key_changed": "a int NOT NULL",
    "harmless": "a text",
}
# in one database, between two syncs; each table has one kind of change, and every row of it counts
CHANGES = (
    "ALTER TABLE swapped RENAME a TO x",
    "ALTER TABLE swapped RENAME b TO a",
    "ALTER TABLE swapped RENAME x TO b",
    "ALTER TABLE using_same_type ALTER a TYPE int USING a + 1",
    "ALTER TABLE blanks ALTER a TYPE char(9)",
    "ALTER TABLE digits ALTER a TYPE numeric(12,1)",
    "ALTER TABLE digits ALTER a TYPE numeric(12,4)",
    "ALTER TABLE instants ALTER a TYPE timestamp(0)",
    "ALTER TABLE instants ALTER a TYPE timestamp(6)",
    "ALTER TABLE documents ALTER a TYPE jsonb",
    "ALTER TABLE documents ALTER a TYPE json",
    "ALTER TABLE added_again DROP a",
    "ALTER TABLE added_again ADD a text",
    "ALTER TABLE defaulted ADD b int DEFAULT 7",
    "ALTER TYPE mood RENAME VALUE 'good' TO 'fine'",
    "ALTER TYPE place ADD ATTRIBUTE z int",
    "ALTER PUBLICATION {p} DROP TABLE gone_for_a_time",
    "DELETE FROM gone_for_a_time WHERE id < 5",
    "ALTER PUBLICATION {p} ADD TABLE gone_for_a_time",
    "DROP TABLE created_again",
    "CREATE TABLE created_again (id int PRIMARY KEY, a text)",
    "INSERT INTO created_again VALUES (1, 'new')",
    "ALTER PUBLICATION {p} ADD TABLE created_again",
    "ALTER TABLE widened ALTER a TYPE bigint",
    "UPDATE widened SET a = a + 10000000000 WHERE id < 3",
    "ALTER TABLE key_changed DROP CONSTRAINT key_changed_pkey, ADD PRIMARY KEY (id, a)",
    "UPDATE key_changed SET a = a + 100 WHERE id < 3",
    "VACUUM FULL harmless",
    "TRUNCATE harmless",
    "INSERT INTO harmless SELECT g, 'again' FROM generate_series(1, 5) g",
    "ALTER TABLE harmless ADD CHECK (id > 0)",
    "CREATE TABLE attached_2 (LIKE attached INCLUDING ALL)",
    "INSERT INTO attached_2 VALUES (15, 'before')",
    "ALTER TABLE attached ATTACH PARTITION attached_2 FOR VALUES FROM (10) TO (20)",
    "ALTER TABLE detached DETACH PARTITION detached_1",
    "DROP TABLE dropped_1",
    "TRUNCATE truncated_1",
    "INSERT INTO truncated VALUES (3, 'after')",
    "ALTER TABLE returned DETACH PARTITION returned_1",
    "UPDATE returned_1 SET t = 'unseen'",
    "ALTER TABLE returned ATTACH PARTITION returned_1 FOR VALUES FROM (0) TO (10)",
    "ALTER TABLE unlogged_1 SET UNLOGGED",
    "UPDATE unlogged_1 SET t = 'unseen'",
    "ALTER TABLE unlogged_1 SET LOGGED",
    "CREATE TABLE calm_2 PARTITION OF calm FOR VALUES FROM (10) TO (20)",
    "INSERT INTO calm SELECT g, 'more' FROM generate_series(10, 19) g",
    "TRUNCATE parts",
    "INSERT INTO parts VALUES (4, 'after')",
)
# followed in place, see test_schema_changes.py
IN_PLACE = {"swapped", "added_again", "defaulted"}
UNCHANGED = {"harmless", "calm", "parts", "mixed", "moved_key", *IN_PLACE}
# of these no more than that, see test_partitions_read_again.py
PARTITIONS_READ = {"attached", "detached", "dropped", "returned"}
# leaves whose identity is not their root's: applied change by change
OF_LEAVES = (
    "UPDATE mixed SET id = id + 5 WHERE id < 3",
    "UPDATE mixed SET t = 'changed' WHERE id = 4",
    "DELETE FROM mixed WHERE id = 3",
    "UPDATE moved_key SET id = 8 WHERE id = 1",
    "UPDATE moved_key SET t = 'other' WHERE id = 2",
    "DELETE FROM moved_key WHERE id = 3",
)


def _schema() -> Iterator[str]:
    yield "CREATE TYPE mood AS ENUM ('good', 'bad')"
    yield "CREATE TYPE place AS (x int, y int)"
    for table, columns in PLAIN.items():
        yield f"CREATE TABLE {table} (id int PRIMARY KEY, {columns})"
    values = {
        "swapped": "g, -g",
        "using_same_type": "g",
        "blanks": "'x'",
        "digits": "g + 0.1234",
        "instants": "'2024-01-01 00:00:00.123456'",
        "documents": '\'{"b": 1,  "a": 2}\'::json',
        "moods": "'good'::mood",
        "places": "ROW(g, g)::place",
        "widened": "g",
        "key_changed": "g",
    }
    for table in PLAIN:
        yield f"INSERT INTO {table} SELECT g, {values.get(table, quoted('old'))} FROM generate_series(1, 9) g"
    for table in PARTED:
        yield f"CREATE TABLE {table} (id int PRIMARY KEY, t text) PARTITION BY RANGE (id)"
        yield f"CREATE TABLE {table}_1 PARTITION OF {table} FOR VALUES FROM (0) TO (10)"
        yield f"INSERT INTO {table} SELECT g, 'row ' || g FROM generate_series(0, 4) g"
    yield "ALTER TABLE ONLY mixed REPLICA IDENTITY FULL"
    yield "ALTER TABLE moved_key ALTER t SET NOT NULL"
    yield "CREATE UNIQUE INDEX moved_key_t ON moved_key (id, t)"
    yield "ALTER TABLE ONLY moved_key REPLICA IDENTITY USING INDEX moved_key_t"


def quoted(text: str) -> str:
    return f"'{text}'"


NAMES = tuple(QualifiedName("public", name) for name in (*PLAIN, *PARTED))


def synced(spark: SparkSession, pipeline: Pipeline) -> SyncReport:
    report = sync(pipeline, lambda: spark)
    assert report.errors == ()
    return report


def read_again(report: SyncReport) -> dict[str, str]:
    return {table.name.relname: table.reason for table in report.snapshots}


def assert_equal(spark: SparkSession, pipeline: Pipeline, *names: QualifiedName) -> None:
    differing = [found for found in compare(spark, pipeline, names) if not found.equal]
    assert differing == []


def test_every_kind_of_change_ends_equal_without_a_hand(
    spark: SparkSession, postgres_15: PostgresServer, tmp_path: Path
) -> None:
    """On one server: tests/postgres/test_fingerprints.py sees each kind on all of them."""
    with fresh_database(postgres_15) as database:
        database.execute(*_schema())
        pipeline = pipeline_of(database, tmp_path / "lake", *map(str, NAMES))
        synced(spark, pipeline)
        database.execute(*(statement.format(p=database.name) for statement in CHANGES), *OF_LEAVES)
        again = read_again(synced(spark, pipeline))
        assert set(again) == {name.relname for name in NAMES} - UNCHANGED - PARTITIONS_READ
        assert all(again.values()), "each says why"
        assert_equal(spark, pipeline, *NAMES)
        # once per cause
        database.execute("UPDATE swapped SET a = 5 WHERE id = 1", "UPDATE moved_key SET t = 'more' WHERE id = 2")
        assert read_again(synced(spark, pipeline)) == {}
        assert_equal(spark, pipeline, *NAMES)
        reasons = {table.name.relname: table.snapshot_reason for table in pipeline_status(pipeline).tables}
        assert {name for name, reason in reasons.items() if reason} == set(again)


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


@pytest.fixture
def orders(spark: SparkSession, database: Database, tmp_path: Path) -> Pipeline:
    """Two tables, synced, with a window after their snapshots."""
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, a int, b int)",
        "CREATE TABLE items (id int PRIMARY KEY, sku text)",
        "INSERT INTO orders SELECT g, g, -g FROM generate_series(1, 20) g",
        "INSERT INTO items SELECT g, 'sku' FROM generate_series(1, 20) g",
    )
    pipeline = pipeline_of(database, tmp_path / "lake", "public.orders", "public.items")
    synced(spark, pipeline)
    database.execute("UPDATE items SET sku = 'seen' WHERE id = 1")
    synced(spark, pipeline)
    return pipeline


ORDERS, ITEMS = QualifiedName("public", "orders"), QualifiedName("public", "items")
REWRITE = "ALTER TABLE orders ALTER a TYPE int USING a + 1"


def test_captured_in_one_run_and_applied_in_another(spark: SparkSession, database: Database, orders: Pipeline) -> None:
    """The log says it: whoever applies needs no source to know."""
    database.execute(REWRITE, "UPDATE items SET sku = 'later'")
    capture(orders)
    report = apply(lambda: spark, orders)
    (error,) = report.errors
    assert isinstance(error, SchemaChangeError)
    assert "public.orders must be read again: it was rewritten by DDL, or unlogged for a time (seen with window" in str(
        error
    )
    assert_equal(spark, orders, ITEMS)
    (trouble,) = [table.error for table in pipeline_status(orders).tables if table.error]
    assert "public.orders must be read again" in str(trouble)
    assert set(read_again(synced(spark, orders))) == {"orders"}
    assert_equal(spark, orders, ORDERS, ITEMS)


def test_where_the_configuration_says_so_the_table_stops_instead(
    spark: SparkSession, database: Database, orders: Pipeline
) -> None:
    pipeline = replace(orders, on_rewrite="error")
    database.execute(REWRITE, "UPDATE items SET sku = 'later'")
    for _ in range(2):
        report = sync(pipeline, lambda: spark)
        (error,) = report.errors
        assert isinstance(error, NeedsSnapshotError)
        assert report.snapshots == ()
        assert_equal(spark, pipeline, ITEMS)
    (taken,) = snapshot(lambda: spark, pipeline, [ORDERS])
    assert taken.error is None
    synced(spark, pipeline)
    assert_equal(spark, pipeline, ORDERS, ITEMS)


def test_a_table_that_changes_on_every_run_is_told_to_wait(
    spark: SparkSession, database: Database, orders: Pipeline
) -> None:
    for _ in range(3):
        database.execute(REWRITE, "UPDATE items SET sku = sku || '.'")
        assert set(read_again(synced(spark, orders))) == {"orders"}
    database.execute(REWRITE, "UPDATE items SET sku = sku || '.'")
    report = sync(orders, lambda: spark)
    (error,) = report.errors
    assert "it changes again and again, and is not read again before" in str(error)
    assert report.snapshots == ()
    assert_equal(spark, orders, ITEMS)
    (taken,) = snapshot(lambda: spark, orders, [ORDERS])  # whoever asks for it need not wait
    assert taken.error is None
    synced(spark, orders)
    assert_equal(spark, orders, ORDERS, ITEMS)


def test_several_changes_before_and_between_two_captures_are_one_snapshot(
    spark: SparkSession, database: Database, orders: Pipeline
) -> None:
    database.execute(REWRITE, "ALTER TABLE orders ADD c text DEFAULT 'x'", "UPDATE orders SET c = 'y' WHERE id = 1")
    capture(orders)
    database.execute("ALTER TABLE orders RENAME b TO d", "UPDATE orders SET c = 'z' WHERE id = 2")
    report = synced(spark, orders)
    assert [table.name for table in report.snapshots] == [ORDERS]
    assert_equal(spark, orders, ORDERS, ITEMS)


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
    spark: SparkSession, database: Database, orders: Pipeline
) -> None:
    database.execute(
        f"ALTER PUBLICATION {database.name} SET (publish = 'insert')",
        "DELETE FROM orders WHERE id < 5",
        f"ALTER PUBLICATION {database.name} SET (publish = 'insert, update, delete, truncate')",
    )
    assert set(read_again(synced(spark, orders))) == {"orders", "items"}
    assert_equal(spark, orders, ORDERS, ITEMS)
