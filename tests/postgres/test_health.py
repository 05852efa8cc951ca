"""The slot's health, and who the server is."""

from __future__ import annotations

import pytest
from psycopg import sql
from pydantic import SecretStr

from spark_jobs.errors import SlotError
from spark_jobs.postgres.connection import connected
from spark_jobs.postgres.health import server_identity, slot_health
from spark_jobs.postgres.slot import create_slot
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres


def test_health_of_a_slot_that_lags(every_database: Database) -> None:
    with connected(SecretStr(every_database.dsn)) as connection:
        with pytest.raises(SlotError, match="there is no slot nothing"):
            slot_health(connection, "nothing")
        start = create_slot(connection, every_database.name, plugin="pgoutput").lsn
        every_database.execute("CREATE TABLE t AS SELECT generate_series(1, 10000)")
        health = slot_health(connection, every_database.name)
        assert health.confirmed_flush_lsn == start
        assert health.confirmed_flush_bytes is not None
        assert health.confirmed_flush_bytes > 100_000
        assert (health.restart_bytes or 0) >= health.confirmed_flush_bytes
        assert (health.plugin, health.active, health.wal_status) == ("pgoutput", False, "reserved")
        assert health.invalidation_reason is None
        assert health.server == server_identity(connection)
        assert health.server.timeline == 1
        assert health.server.server_version // 10000 == every_database.server.version
        assert health.server.system_identifier > 1 << 60


def test_the_transaction_that_holds_the_slot_back_shows(every_database: Database) -> None:
    with connected(SecretStr(every_database.dsn)) as connection, every_database.connect() as other:
        name = every_database.name
        create_slot(connection, name, plugin="pgoutput")
        free = slot_health(connection, name).free_replication_slots
        every_database.execute(f"SELECT pg_create_physical_replication_slot('{name}_2')")
        assert slot_health(connection, name).free_replication_slots == free - 1
        every_database.execute(f"SELECT pg_drop_replication_slot('{name}_2')")

        other.execute("BEGIN")
        other.execute("SELECT txid_current(), pg_sleep(0.2)")
        found = slot_health(connection, name).oldest_transaction
        assert found is not None
        assert (found.pid, found.gid) == (other.info.backend_pid, None)
        assert found.age is not None
        assert found.age.total_seconds() >= 0.2
        assert found.state == "idle in transaction"
        assert str(found) == f"of server process {found.pid} (idle in transaction), open for 0 s"
        assert found.way_to_end == f"SELECT pg_terminate_backend({found.pid})"


def test_a_transaction_that_only_reads_holds_no_slot_back(database: Database) -> None:
    with connected(SecretStr(database.dsn)) as connection, database.connect() as other:
        create_slot(connection, database.name, plugin="pgoutput")
        other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        other.execute("SELECT 1")
        found = slot_health(connection, database.name).oldest_transaction
        assert found is None or found.pid != other.info.backend_pid


def test_a_prepared_transaction_shows_under_its_cleaned_name(every_database: Database) -> None:
    every_database.execute("CREATE TABLE t (id int)")
    gid = f"{every_database.name}\x1b[31m\nred"
    with connected(SecretStr(every_database.dsn)) as connection, every_database.connect() as other:
        create_slot(connection, every_database.name, plugin="pgoutput")
        other.execute("BEGIN")
        other.execute("INSERT INTO t VALUES (1)")
        other.execute(sql.SQL("PREPARE TRANSACTION {}").format(sql.Literal(gid)))
        try:
            found = slot_health(connection, every_database.name).oldest_transaction
        finally:
            other.execute(sql.SQL("ROLLBACK PREPARED {}").format(sql.Literal(gid)))
    assert found is not None
    assert (found.pid, found.gid) == (None, gid)
    assert found.age is not None
    assert str(found) == f"prepared as '{every_database.name} red', open for 0 s"


def test_what_an_unprivileged_role_may_not_see_is_named(every_database: Database) -> None:
    database, role = every_database, f"modest_{every_database.name}"
    database.execute(f"CREATE ROLE {role} LOGIN REPLICATION PASSWORD 'pw'")
    dsn = SecretStr(database.server.dsn(database.name, user=role, password="pw"))
    try:
        with connected(dsn) as connection, database.connect() as other:
            create_slot(connection, database.name, plugin="pgoutput")
            other.execute("BEGIN")
            other.execute("SELECT txid_current()")
            found = slot_health(connection, database.name).oldest_transaction
            assert found is not None
            assert (found.pid, found.age) == (other.info.backend_pid, None)
            assert "age hidden from this role, which lacks pg_read_all_stats" in str(found)
            database.execute(f"GRANT pg_read_all_stats TO {role}")
            shown = slot_health(connection, database.name).oldest_transaction
            assert shown is not None
            assert shown.age is not None
    finally:
        database.execute(f"DROP ROLE {role}")
