"""What only PostgreSQL 19 has, from the source to the lake: decoding without ``wal_level = logical``, FOR ALL TABLES
EXCEPT, REPACK (CONCURRENTLY)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.configuration import Pipeline
from spark_jobs.doctor import Verdict, diagnose
from spark_jobs.errors import CdcError
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.sync import SyncReport, sync
from tests.at_night import at_night
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database, fresh_database, started
from tests.spark.followed_pipeline import Followed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

ORDERS, ITEMS, PARTED = (QualifiedName("public", name) for name in ("orders", "items", "parted"))
SECRET, HIDDEN = QualifiedName("public", "secret"), QualifiedName("public", "hidden_1")
TABLES = (
    "CREATE TABLE orders (id int PRIMARY KEY, status text, amount numeric(10,2))",
    "CREATE TABLE items (id int PRIMARY KEY, sku text)",
    "CREATE TABLE secret (id int PRIMARY KEY, word text)",
    *(
        statement
        for name in ("parted", "hidden")
        for statement in (
            f"CREATE TABLE {name} (id int PRIMARY KEY, note text) PARTITION BY RANGE (id)",
            f"CREATE TABLE {name}_1 PARTITION OF {name} FOR VALUES FROM (0) TO (100)",
            f"CREATE TABLE {name}_2 PARTITION OF {name} FOR VALUES FROM (100) TO (1000)",
            f"INSERT INTO {name} SELECT g, 'x' FROM generate_series(1, 200) g",
        )
    ),
    "INSERT INTO orders SELECT g, 'new', g FROM generate_series(1, 500) g",
    "INSERT INTO items SELECT g, 'sku' FROM generate_series(1, 20) g",
    "INSERT INTO secret SELECT g, 'word' FROM generate_series(1, 20) g",
)


@pytest.fixture(scope="module")
def modest() -> Iterator[PostgresServer]:
    """As PostgreSQL comes: nobody has set it up for logical decoding."""
    with started(19, {"wal_level": "replica"}) as server:
        yield server


@pytest.fixture
def database(modest: PostgresServer) -> Iterator[Database]:
    with fresh_database(modest) as database:
        database.execute(*TABLES)
        yield database


def shop(spark: SparkSession, pipeline: Pipeline, database: Database, *names: QualifiedName) -> Followed:
    return Followed(spark, database, pipeline, names)


def synced(followed: Followed) -> SyncReport:
    return sync(followed.pipeline, lambda: followed.spark)


def repacked_under_load(database: Database) -> None:
    """Every row of orders is updated while the table is repacked."""
    with database.connect() as connection:
        updates = threading.Thread(
            target=lambda: [
                connection.execute("UPDATE orders SET status = status || '.' WHERE id %% 10 = %s", [n % 10])
                for n in range(60)
            ]
        )
        updates.start()
        for _ in range(5):
            database.execute("REPACK (CONCURRENTLY) orders")
        updates.join()


@pytest.mark.parametrize("plugin", ["pgoutput", at_night("test_decoding")])
def test_as_postgres_comes(spark: SparkSession, database: Database, tmp_path: Path, plugin: str) -> None:
    """No setting is changed; all tables but two are sent, one of these partitioned."""
    by_publication = plugin == "pgoutput"
    database.execute(
        f"CREATE PUBLICATION {database.name} FOR ALL TABLES EXCEPT (TABLE secret, hidden), ALL SEQUENCES"
        " WITH (publish_via_partition_root)"
    )
    listed = () if by_publication else ("public.orders", "public.items", "public.parted")
    pipeline = pipeline_of(database, tmp_path / "lake", *listed, plugin=plugin)
    followed = shop(spark, pipeline, database, ORDERS, ITEMS, PARTED)
    assert database.execute("SHOW effective_wal_level") == [("replica",)]
    assert diagnose(followed.pipeline).failures == ()
    first = synced(followed)
    assert first.errors == ()
    assert {each.name for each in first.snapshots} == {ORDERS, ITEMS, PARTED}
    assert database.execute("SHOW effective_wal_level") == [("logical",)]
    followed.assert_equal()
    database.execute(
        "UPDATE orders SET status = 'seen', id = id + 1000 WHERE id % 7 = 0",
        "ALTER TABLE orders ADD COLUMN note text DEFAULT 'none'",
        "INSERT INTO orders VALUES (9999, 'late', 1, 'x')",
        "ALTER TABLE items RENAME sku TO code",
        "DELETE FROM items WHERE id < 5",
        "UPDATE parted SET id = id + 300, note = 'moved' WHERE id < 10",
        "INSERT INTO secret VALUES (99, 'unseen')",
        "UPDATE hidden SET note = 'unseen'",
        "TRUNCATE hidden",
    )
    assert synced(followed).errors == ()
    followed.assert_equal()
    repacked_under_load(database)
    report = synced(followed)
    assert report.errors == ()
    assert [each.name for each in report.snapshots] == [ORDERS], "without a list, it may have been unlogged for a time"
    followed.assert_equal()
    for unsent in (SECRET, HIDDEN, QualifiedName("public", "hidden")):
        assert not Path(followed.pipeline.lake.table(unsent)).exists()


def test_a_table_of_our_publication_is_repacked(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    """Its rows are known to be the same, so it is not read again."""
    followed = shop(spark, pipeline_of(database, tmp_path / "lake", "public.orders"), database, ORDERS)
    assert synced(followed).errors == ()
    repacked_under_load(database)
    report = synced(followed)
    assert (report.errors, report.snapshots) == ((), ())
    followed.assert_equal()


def refusal(report: SyncReport) -> CdcError:
    [error] = report.errors
    return error


@pytest.mark.parametrize("listed", [True, False], ids=["listed", "of the publication"])
def test_a_table_that_is_excluded_later(spark: SparkSession, database: Database, tmp_path: Path, listed: bool) -> None:
    """A table of the configuration stops, one that only the publication named is no longer followed. By the statement
    that the error gives, either gets a snapshot."""
    name = database.name
    database.execute(f"CREATE PUBLICATION {name} FOR ALL TABLES EXCEPT (TABLE secret, hidden, parted), ALL SEQUENCES")
    tables = ("public.orders", "public.items") if listed else ()
    followed = shop(spark, pipeline_of(database, tmp_path / "lake", *tables), database, ORDERS, ITEMS)
    assert synced(followed).errors == ()
    database.execute(
        f"ALTER PUBLICATION {name} SET ALL TABLES EXCEPT (TABLE secret, hidden, parted, items), ALL SEQUENCES",
        "DELETE FROM items WHERE id < 5",
        "UPDATE orders SET status = 'seen'",
    )
    remedy = f"ALTER PUBLICATION {name} SET ALL TABLES EXCEPT (TABLE public.hidden, public.parted, public.secret)"
    remedy += ", ALL SEQUENCES"
    report = synced(followed)
    if listed:
        assert f"does not publish public.items: {remedy}" in str(refusal(report))
        [fault] = diagnose(followed.pipeline).failures
        assert (fault.what, fault.remedy) == ("public.items", remedy)
    else:
        assert report.errors == ()
        found = {check.found for check in diagnose(followed.pipeline).checks if check.verdict is Verdict.OK}
        assert (
            "1 table, all but public.hidden, public.items, public.parted, public.secret; your own, used as it is"
            in (found)
        )
    replace(followed, names=(ORDERS,)).assert_equal()
    database.execute(remedy, "UPDATE items SET sku = 'after' WHERE id = 7")
    report = synced(followed)
    assert report.errors == ()
    assert [each.name for each in report.snapshots] == [ITEMS]
    followed.assert_equal()
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute("DELETE FROM items WHERE id = 8")
    assert synced(followed).snapshots == ()
    followed.assert_equal()
