"""A break in what a table's changes come by: told by none of its changes, mended by the next sync, with a new snapshot.

And tables that cannot be followed any more: they stop alone.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from spark_jobs.change_log.log import ChangeLog
from spark_jobs.configuration import Table
from spark_jobs.errors import PreconditionError
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.sync import SyncReport, sync
from tests.at_night import at_night
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database
from tests.spark.followed_pipeline import Followed, synced

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

ORDERS, ITEMS = QualifiedName("public", "orders"), QualifiedName("public", "items")
TABLES = (
    "CREATE TABLE orders (id int PRIMARY KEY, status text)",
    "CREATE TABLE items (id int PRIMARY KEY, sku text)",
    "INSERT INTO orders SELECT g, 'new' FROM generate_series(1, 20) g",
    "INSERT INTO items SELECT g, 'sku' FROM generate_series(1, 20) g",
)
UNSEEN = ("DELETE FROM orders WHERE id <= 5", "UPDATE orders SET status = 'unseen' WHERE id > 15")


@pytest.fixture
def shop(spark: SparkSession, database: Database, tmp_path: Path) -> Followed:
    database.execute(*TABLES)
    return Followed(
        spark, database, pipeline_of(database, tmp_path / "lake", "public.orders", "public.items"), (ORDERS, ITEMS)
    )


def taken(report: SyncReport) -> list[str]:
    return [snapshot.name.relname for snapshot in report.snapshots]


@pytest.mark.parametrize("plugin", ["pgoutput", at_night("test_decoding")])
def test_a_table_taken_out_of_the_configuration_and_put_back(shop: Followed, plugin: str) -> None:
    source = replace(shop.pipeline.source, plugin=plugin)  # type: ignore[arg-type]
    shop = replace(shop, pipeline=replace(shop.pipeline, source=source))
    assert taken(synced(shop)) == ["orders", "items"]
    fewer = replace(shop, pipeline=replace(shop.pipeline, tables=(Table(ITEMS),)), names=(ITEMS,))
    shop.database.execute("UPDATE orders SET status = 'seen' WHERE id = 1")
    synced(fewer)
    shop.database.execute(*UNSEEN, "UPDATE items SET sku = 'x'")
    synced(fewer)
    shop.database.execute("INSERT INTO orders VALUES (99, 'late')")
    assert taken(synced(shop)) == ["orders"]
    shop.assert_equal()
    shop.database.execute("UPDATE orders SET status = 'seen again'", "DELETE FROM items WHERE id = 1")
    assert taken(synced(shop)) == []
    shop.assert_equal()


@pytest.mark.parametrize(
    "meanwhile",
    [
        ("ALTER PUBLICATION {p} DROP TABLE orders", *UNSEEN, "ALTER PUBLICATION {p} ADD TABLE orders"),
        ("DROP TABLE orders", TABLES[0], "ALTER PUBLICATION {p} ADD TABLE orders"),
    ],
    ids=["taken out and put back", "re-created"],
)
def test_a_users_own_publication_in_which_a_table_was_missing(
    spark: SparkSession, database: Database, tmp_path: Path, meanwhile: tuple[str, ...]
) -> None:
    database.execute(*TABLES, f"CREATE PUBLICATION {database.name} FOR TABLE orders, items")
    shop = Followed(
        spark, database, pipeline_of(database, tmp_path / "lake", "public.orders", "public.items"), (ORDERS, ITEMS)
    )
    synced(shop)
    database.execute(*(statement.format(p=database.name) for statement in meanwhile), "UPDATE items SET sku = 'x'")
    assert taken(synced(shop)) == ["orders"]
    shop.assert_equal()
    assert taken(synced(shop)) == []


def test_the_same_publication_set_again_is_no_break(shop: Followed) -> None:
    synced(shop)
    shop.database.execute(
        f"ALTER PUBLICATION {shop.database.name} SET TABLE items, orders",
        f"ALTER PUBLICATION {shop.database.name} OWNER TO CURRENT_USER",
        "ALTER TABLE orders ADD CHECK (id > 0)",
        "VACUUM FULL orders",
    )
    assert taken(synced(shop)) == []
    shop.assert_equal()


@pytest.mark.parametrize("ddl", ["DROP TABLE orders", "ALTER TABLE orders RENAME TO purchases"])
def test_a_table_that_is_gone_stops_alone(shop: Followed, ddl: str) -> None:
    synced(shop)
    shop.database.execute(ddl, "UPDATE items SET sku = 'x'")
    report = sync(shop.pipeline, lambda: shop.spark)
    (error,) = report.errors
    assert "there is no table public.orders in database" in str(error)
    assert [table.name for table in report.stopped] == [ORDERS]
    others = replace(shop, names=(ITEMS,))
    others.assert_equal()
    flushed = shop.database.execute(
        "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = current_database()"
    )
    assert flushed == [(str(ChangeLog(shop.pipeline.lake.change_log).markers()[-1].window.hi),)]


def test_a_new_table_without_a_key_is_followed_by_its_inserts_once_others_are(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    database.execute(*TABLES, f"CREATE PUBLICATION {database.name} FOR ALL TABLES")
    shop = Followed(spark, database, pipeline_of(database, tmp_path / "lake"), (ORDERS, ITEMS))
    synced(shop)
    database.execute("CREATE TABLE notes (note text)", "INSERT INTO notes VALUES ('x')", "UPDATE items SET sku = 'x'")
    shop = replace(shop, names=(ORDERS, ITEMS, QualifiedName("public", "notes")))
    assert taken(synced(shop)) == ["notes"]
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="does not have a replica identity"):
        database.execute("DELETE FROM notes")
    database.execute("INSERT INTO notes VALUES ('x'), ('y')")
    assert taken(synced(shop)) == []
    database.execute("TRUNCATE notes", "INSERT INTO notes VALUES ('y')")
    assert taken(synced(shop)) == []
    database.execute("ALTER TABLE notes ADD PRIMARY KEY (note)", "UPDATE notes SET note = 'z'")
    assert taken(synced(shop)) == ["notes"]


def test_a_key_of_generated_columns_never_enters_the_publication(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE odd (n int NOT NULL, k int GENERATED ALWAYS AS (n * 2) STORED PRIMARY KEY)")
    with pytest.raises(PreconditionError, match=r"table public\.odd has a generated column in its key: k"):
        sync(pipeline_of(database, tmp_path / "lake", "public.odd"), lambda: spark)
    assert database.execute("SELECT count(*) FROM pg_publication") == [(0,)]


def test_a_key_made_narrower_costs_a_snapshot_before_it_deletes_too_much(shop: Followed) -> None:
    """One range with both identities: the wider one's old keys must not be read as the narrower one's."""
    shop.database.execute("CREATE TABLE versions (id int, version int, PRIMARY KEY (id, version))")
    shop.database.execute("INSERT INTO versions VALUES (1, 1), (1, 2), (2, 2)")
    name = QualifiedName("public", "versions")
    versions = replace(shop, pipeline=replace(shop.pipeline, tables=(Table(name), Table(ITEMS))), names=(name,))
    synced(versions)
    shop.database.execute(
        "DELETE FROM versions WHERE (id, version) = (1, 1)",
        "ALTER TABLE versions DROP CONSTRAINT versions_pkey, ADD PRIMARY KEY (id)",
        "UPDATE versions SET version = 3 WHERE id = 2",
        "UPDATE items SET sku = 'x'",
    )
    report = synced(versions)
    (reason,) = [table.reason for table in report.snapshots]
    assert "the replica identity of public.versions was changed" in reason
    replace(versions, names=(name, ITEMS)).assert_equal()


def test_stored_generated_columns_that_the_publication_sends(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    """18+: https://www.postgresql.org/docs/current/logical-replication-gencols.html"""
    database.execute(
        "CREATE TABLE sums (a int NOT NULL, k int GENERATED ALWAYS AS (a * 2) STORED PRIMARY KEY,"
        " v int GENERATED ALWAYS AS (a * 3) VIRTUAL)",
        "INSERT INTO sums VALUES (1), (2)",
        f"CREATE PUBLICATION {database.name} FOR TABLE sums WITH (publish_generated_columns = stored)",
    )
    name = QualifiedName("public", "sums")
    sums = Followed(spark, database, pipeline_of(database, tmp_path / "lake", "public.sums"), (name,))
    synced(sums)
    assert sums.lake_rows(name) == ([(1, 2), (2, 4)], ["a", "k"])
    database.execute("INSERT INTO sums VALUES (3)", "DELETE FROM sums WHERE a = 1", "UPDATE sums SET a = 5 WHERE a = 2")
    synced(sums)
    assert sums.lake_rows(name) == ([(3, 6), (5, 10)], ["a", "k"])
    sums.assert_equal()
