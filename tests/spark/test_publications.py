"""Publications as DBAs make them: row filters, column lists, subsets of operations, schemas, partitions, inheritance.

Each scenario ends twice: in the comparison, and in queries of its own that say which rows and columns are due.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.configuration import Pipeline
from spark_jobs.doctor import Verdict, diagnose
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.status import pipeline_status
from spark_jobs.sync import SyncReport
from tests.at_night import at_night
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.row_compare import compare, lake_rows
from tests.fixtures.servers import Database, fresh_database
from tests.spark.altered_tables import synced

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]


@pytest.fixture(params=[15, at_night(18)])
def subsets(request: pytest.FixtureRequest) -> Iterator[Database]:
    """On the first server that has row filters and column lists, and on the newest."""
    server: PostgresServer = request.getfixturevalue(f"postgres_{request.param}")
    with fresh_database(server) as database:
        yield database


def read_again(report: SyncReport) -> set[str]:
    return {str(table.name) for table in report.snapshots}


def assert_lake(spark: SparkSession, pipeline: Pipeline, database: Database, due: dict[str, str]) -> None:
    """``due``: by table, the query of the source that gives what its lake table holds, columns included."""
    names = tuple(QualifiedName.parse(table) for table in due)
    assert [found for found in compare(spark, pipeline, names) if not found.equal] == []
    for name, query in zip(names, due.values(), strict=True):
        rows = lake_rows(spark, pipeline.lake.table(name))
        with database.connect() as connection:
            cursor = connection.execute(query)
            source = sorted(cursor.fetchall(), key=repr)
        assert rows.column_names == [column.name for column in cursor.description or ()], name
        assert sorted(zip(*(column.to_pylist() for column in rows.columns), strict=True), key=repr) == source, name


FILTERED = (
    "CREATE TABLE orders (id int PRIMARY KEY, region text, note text, doc text)",
    "ALTER TABLE orders REPLICA IDENTITY FULL",
    "CREATE TABLE people (id int PRIMARY KEY, name text, email text, born date)",
    "CREATE TABLE moved (id int PRIMARY KEY, doc text)",
    "CREATE TABLE parts (kind text, id int PRIMARY KEY, secret text) PARTITION BY RANGE (id)",
    "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10)",
    "CREATE TABLE parts_2 (secret text, id int NOT NULL, kind text)",
    "ALTER TABLE parts ATTACH PARTITION parts_2 FOR VALUES FROM (10) TO (99)",
    "ALTER TABLE orders ALTER doc SET STORAGE EXTERNAL",
    "ALTER TABLE moved ALTER doc SET STORAGE EXTERNAL",
    (
        "INSERT INTO orders SELECT g, CASE g % 3 WHEN 0 THEN 'eu' WHEN 1 THEN 'us' END, 'note',"
        " repeat(md5(g::text), 300) FROM generate_series(1, 30) g"
    ),
    "INSERT INTO people SELECT g, 'name', 'canary@example', '2000-01-01'::date + g FROM generate_series(1, 9) g",
    "INSERT INTO moved SELECT g, repeat(md5(g::text), 300) FROM generate_series(95, 105) g",
    "INSERT INTO parts SELECT 'kind', g, 'canary' FROM generate_series(1, 20) g",
)
ENTRIES = (
    "TABLE orders WHERE (region = 'eu'), people (id, name), moved WHERE (id > 100), parts (id, kind) WHERE (id % 2 = 0)"
)
DUE = {
    "orders": "SELECT * FROM orders WHERE region = 'eu'",
    "people": "SELECT id, name FROM people",
    "moved": "SELECT * FROM moved WHERE id > 100",
    "parts": "SELECT kind, id FROM parts WHERE id % 2 = 0",
}


def test_row_filters_and_column_lists(spark: SparkSession, subsets: Database, tmp_path: Path) -> None:
    subsets.execute(
        *FILTERED, f"CREATE PUBLICATION {subsets.name} FOR {ENTRIES} WITH (publish_via_partition_root = true)"
    )
    pipeline = pipeline_of(subsets, tmp_path / "lake", *DUE)
    assert read_again(synced(spark, pipeline)) == {f"public.{table}" for table in DUE}
    assert_lake(spark, pipeline, subsets, DUE)
    subsets.execute(
        "UPDATE orders SET region = 'eu' WHERE id IN (1, 2)",  # enter, one from NULL, with documents that stay
        "UPDATE orders SET region = NULL WHERE id = 3",
        "UPDATE orders SET region = 'us' WHERE id = 6",
        "UPDATE orders SET note = 'other' WHERE id IN (9, 10, 11)",
        "BEGIN; UPDATE orders SET region = 'eu' WHERE id = 5; UPDATE orders SET region = NULL, note = 'x' WHERE id = 5;"
        " UPDATE orders SET region = 'eu' WHERE id = 5; COMMIT",
        "DELETE FROM orders WHERE id IN (12, 13)",
        "INSERT INTO orders VALUES (40, 'eu', 'n', 'd'), (41, 'us', 'n', 'd'), (42, NULL, 'n', 'd')",
        "UPDATE orders SET id = 50 WHERE id = 15",
        "UPDATE people SET email = 'other' WHERE id = 1",
        "UPDATE people SET name = 'other' WHERE id = 2",
        "UPDATE people SET id = 33 WHERE id = 3",
        "DELETE FROM people WHERE id = 4",
        "UPDATE moved SET id = 10 WHERE id = 101",
        "UPDATE moved SET id = 202 WHERE id = 102",  # keeps its document
        "DELETE FROM moved WHERE id IN (95, 103)",
        "UPDATE parts SET id = 32 WHERE id = 2",  # to another partition, and stays
        "UPDATE parts SET id = 35 WHERE id = 4",  # leaves
        "UPDATE parts SET id = 38 WHERE id = 5",  # enters
        "UPDATE parts SET kind = 'other', secret = 'canary' WHERE id IN (6, 7, 12)",
    )
    assert read_again(synced(spark, pipeline)) == set()
    assert_lake(spark, pipeline, subsets, DUE)
    # a row that enters without its document, and filter and list altered in the middle of a window
    subsets.execute(
        "UPDATE moved SET id = 300 WHERE id = 96",
        "UPDATE orders SET region = 'us' WHERE id = 9",
        "UPDATE people SET name = 'before' WHERE id = 5",
        f"ALTER PUBLICATION {subsets.name} SET {ENTRIES.replace('eu', 'us').replace('name', 'born')}",
        "UPDATE orders SET region = 'us' WHERE id = 18",
        "UPDATE orders SET region = 'eu' WHERE id = 16",
        "UPDATE people SET name = 'after', born = '1999-01-01' WHERE id = 6",
        "TRUNCATE parts",
        "INSERT INTO parts SELECT 'again', g, 'canary' FROM generate_series(5, 14) g",
    )
    report = synced(spark, pipeline)
    assert read_again(report) == {"public.orders", "public.people", "public.moved"}
    why = {str(table.name): table.reason for table in report.snapshots}
    assert "row filter or column list was altered" in why["public.orders"]
    assert "arrived without the value of column doc" in why["public.moved"]
    altered = {
        **DUE,
        "orders": "SELECT * FROM orders WHERE region = 'us'",
        "people": "SELECT id, born FROM people",
    }
    assert_lake(spark, pipeline, subsets, altered)
    # and between two syncs
    subsets.execute(
        "TRUNCATE orders",
        "INSERT INTO orders VALUES (1, 'eu', 'n', 'd'), (2, 'us', 'n', 'd')",
        f"ALTER PUBLICATION {subsets.name} SET TABLE orders WHERE (region = 'us'), people, moved",
    )
    pipeline = pipeline_of(subsets, tmp_path / "lake", "orders", "people", "moved")
    assert read_again(synced(spark, pipeline)) == {"public.people", "public.moved"}
    rest = {"orders": altered["orders"], "people": "SELECT * FROM people", "moved": "SELECT * FROM moved"}
    assert_lake(spark, pipeline, subsets, rest)


def test_operations_that_are_left_out(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    """The lake keeps what it does not see deleted, and never holds one key twice."""
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, note text)",
        "INSERT INTO orders SELECT g, 'old' FROM generate_series(1, 4) g",
        f"CREATE PUBLICATION {database.name} FOR ALL TABLES WITH (publish = 'insert, update')",
    )
    pipeline, name = pipeline_of(database, tmp_path / "lake"), QualifiedName("public", "orders")
    synced(spark, pipeline)
    database.execute("DELETE FROM orders WHERE id < 3", "INSERT INTO orders VALUES (1, 'again'), (9, 'new')")
    assert read_again(synced(spark, pipeline)) == set()
    database.execute("TRUNCATE orders", "INSERT INTO orders VALUES (3, 'again')")
    assert read_again(synced(spark, pipeline)) == set()
    rows = lake_rows(spark, pipeline.lake.table(name)).sort_by("id")
    assert rows.to_pylist() == [
        {"id": number, "note": note}
        for number, note in ((1, "again"), (2, "old"), (3, "again"), (4, "old"), (9, "new"))
    ]
    unseen = "the publication leaves out delete, truncate: the lake does not see them"
    (warning,) = [check for check in diagnose(pipeline).checks if check.area == "tables" and check.what == str(name)][
        1:
    ]
    assert (warning.verdict, warning.found) == (Verdict.WARN, unseen)
    (table,) = pipeline_status(pipeline).tables
    assert (table.missing_operations, table.error) == (("delete", "truncate"), None)
    database.execute(f"ALTER PUBLICATION {database.name} SET (publish = 'insert, update, delete, truncate')")
    assert read_again(synced(spark, pipeline)) == {"public.orders"}
    assert pipeline_status(pipeline).tables[0].missing_operations == ()
    database.execute("DELETE FROM orders WHERE id = 3", "INSERT INTO orders VALUES (3, 'last'), (5, 'last')")
    assert read_again(synced(spark, pipeline)) == set()
    assert_lake(spark, pipeline, database, {"orders": "SELECT * FROM orders"})


def test_schemas_inheritance_and_partitions_on_their_own(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    """Two publications, one of them of a schema: leaves follow under their own names, rows move between them."""
    database.execute(
        "CREATE SCHEMA shop",
        "CREATE TABLE shop.parts (id int PRIMARY KEY, doc text) PARTITION BY RANGE (id)",
        "CREATE TABLE shop.parts_1 PARTITION OF shop.parts FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE shop.parts_2 PARTITION OF shop.parts FOR VALUES FROM (10) TO (20)",
        "ALTER TABLE shop.parts_1 ALTER doc SET STORAGE EXTERNAL",
        "ALTER TABLE shop.parts_2 ALTER doc SET STORAGE EXTERNAL",
        "CREATE TABLE animals (id int PRIMARY KEY, name text)",
        "CREATE TABLE dogs (breed text, PRIMARY KEY (id)) INHERITS (animals)",
        "INSERT INTO shop.parts SELECT g, repeat(md5(g::text), 300) FROM generate_series(1, 15) g",
        "INSERT INTO animals VALUES (1, 'cat')",
        "INSERT INTO dogs VALUES (1, 'dog', 'poodle')",
        f"CREATE PUBLICATION {database.name} FOR TABLES IN SCHEMA shop",
        f"CREATE PUBLICATION {database.name}_2 FOR TABLE animals WHERE (id < 5)",
    )
    pipeline = pipeline_of(database, tmp_path / "lake", publication=(database.name, f"{database.name}_2"))
    due = {
        "shop.parts_1": "SELECT * FROM shop.parts_1",
        "shop.parts_2": "SELECT * FROM shop.parts_2",
        "animals": "SELECT * FROM ONLY animals WHERE id < 5",
        "dogs": "SELECT * FROM dogs WHERE id < 5",
    }
    names = {str(QualifiedName.parse(table)) for table in due}
    assert read_again(synced(spark, pipeline)) == names
    database.execute(
        "UPDATE shop.parts SET id = id + 10 WHERE id IN (6, 7, 8)",
        "UPDATE shop.parts SET id = 0 WHERE id = 15",
        "DELETE FROM shop.parts WHERE id = 2",
        "UPDATE animals SET name = upper(name)",
        "UPDATE dogs SET id = 7",
        "INSERT INTO dogs VALUES (2, 'wolf', NULL)",
        "INSERT INTO animals VALUES (3, 'fox'), (8, 'owl')",
        "CREATE TABLE shop.later (id int PRIMARY KEY)",
        "INSERT INTO shop.later VALUES (1)",
    )
    assert read_again(synced(spark, pipeline)) == {"shop.later"}
    database.execute("INSERT INTO shop.later VALUES (2)", "UPDATE shop.parts SET id = 19 WHERE id = 0")
    assert read_again(synced(spark, pipeline)) == set()
    assert_lake(spark, pipeline, database, {**due, "shop.later": "SELECT * FROM shop.later"})
