"""What the source must bring, and who it must be: one line each when it does not."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from psycopg import sql
from pydantic import SecretStr

from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.capture.capture import capture
from spark_jobs.errors import BreakError, PreconditionError, SourceUnreachableError
from spark_jobs.postgres.bulk_read import bulk_connection
from spark_jobs.postgres.catalogue import relation_facts
from spark_jobs.postgres.connection import conninfo
from spark_jobs.prepare import prepare
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.snapshot.export import ctid_ranges, range_query
from spark_jobs.snapshot.exporter import exported_snapshot
from spark_jobs.snapshot.range_read import RangeQuery, read_range
from tests.fixtures.pipelines import pipeline_of, prepare_slot
from tests.fixtures.servers import Database, fresh_database, started

pytestmark = pytest.mark.postgres

TABLE = "CREATE TABLE orders (id bigint PRIMARY KEY)"


def test_wal_level_is_not_logical(tmp_path: Path) -> None:
    with started(18, {"wal_level": "replica"}) as server:
        database = Database(server, "postgres")
        database.execute(TABLE)
        with pytest.raises(PreconditionError, match="SET wal_level = 'logical'") as caught:
            prepare_slot(pipeline_of(database, tmp_path / "lake", "orders"))
        assert "\n" not in str(caught.value)
        with pytest.raises(PreconditionError, match="wal_level"), exported_snapshot(SecretStr(database.dsn)):
            pass
        assert database.execute("SELECT 1 FROM pg_replication_slots") == []


def test_another_cluster_under_the_same_name(database: Database, postgres_16: PostgresServer, tmp_path: Path) -> None:
    database.execute(TABLE)
    pipeline = pipeline_of(database, tmp_path / "lake", "orders")
    prepare_slot(pipeline)
    with fresh_database(postgres_16) as other:
        moved = pipeline_of(database, tmp_path / "lake", "orders", dsn=other.dsn)
        for step in (prepare_slot, capture):
            with pytest.raises(BreakError, match=r"of another cluster \(system identifier\)"):
                step(moved)
        assert other.execute(f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{database.name}'") == []


@pytest.mark.parametrize(
    "made",
    [
        "CREATE VIEW thing AS SELECT 1 AS id",
        "CREATE MATERIALIZED VIEW thing AS SELECT 1 AS id",
        "CREATE FOREIGN TABLE thing (id int) SERVER far",
        "CREATE SEQUENCE thing",
    ],
)
def test_what_is_no_table_is_reported_as_missing(database: Database, tmp_path: Path, made: str) -> None:
    database.execute("CREATE FOREIGN DATA WRAPPER nothing", "CREATE SERVER far FOREIGN DATA WRAPPER nothing", made)
    with pytest.raises(PreconditionError, match=r"there is no table public\.thing in database"):
        prepare(pipeline_of(database, tmp_path / "lake", "public.thing"))
    assert database.execute("SELECT 1 FROM pg_replication_slots WHERE database = current_database()") == []


@pytest.mark.parametrize(
    ("wanted", "guess"),
    [("orders", "; did you mean sales.orders?"), ("items", "; did you mean public.item?"), ("public.sales", "")],
)
def test_what_may_be_meant_by_a_table_that_is_missing_is_named(
    database: Database, tmp_path: Path, wanted: str, guess: str
) -> None:
    database.execute(
        "CREATE SCHEMA sales", "CREATE TABLE sales.orders (id int PRIMARY KEY)", "CREATE TABLE item (id int)"
    )
    with pytest.raises(PreconditionError, match="there is no table public") as missing:
        prepare(pipeline_of(database, tmp_path / "lake", wanted))
    assert missing.value.hint == f"correct tables: in the configuration{guess}"


def test_snapshot_needs_replication_and_select(every_database: Database) -> None:
    role = f"reader_{every_database.name}"
    with every_database.connect() as connection:
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'pw'").format(sql.Identifier(role)))
    try:
        every_database.execute(TABLE, "INSERT INTO orders VALUES (1)")
        dsn = SecretStr(every_database.server.dsn(every_database.name, user=role, password="pw"))
        with pytest.raises(PreconditionError, match=r"(?i)replication"), exported_snapshot(dsn):
            pass
        every_database.execute(f"ALTER ROLE {role} REPLICATION")
        with exported_snapshot(dsn) as (snapshot, connection):
            [facts] = relation_facts(connection, names=[QualifiedName("public", "orders")])
            query = range_query(facts, ctid_ranges(connection, facts.relid)[0], ["id"])
            with pytest.raises(PreconditionError, match="permission denied for table orders"):
                list(read_range(partial(bulk_connection, conninfo(dsn)), snapshot.snapshot_name, query))
            every_database.execute(f"GRANT SELECT ON orders TO {role}")
            [batch] = read_range(partial(bulk_connection, conninfo(dsn)), snapshot.snapshot_name, query)
            assert batch.to_pylist() == [{"id": 1}]
    finally:
        every_database.execute(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_wrong_password_of_a_bulk_read_does_not_show(database: Database) -> None:
    dsn = SecretStr(database.server.dsn(database.name, password="geheim"))
    with pytest.raises(SourceUnreachableError, match="password authentication failed") as caught:
        list(read_range(partial(bulk_connection, conninfo(dsn)), "none", RangeQuery("t", "SELECT 1", "SELECT 1")))
    assert "geheim" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_executors_load_no_driver_but_the_bulk_one() -> None:
    heavy = "('psycopg', 'pyspark', 'deltalake', 'pydantic')"
    code = f"import sys, spark_jobs.snapshot.range_read; print([m for m in {heavy} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "[]"
