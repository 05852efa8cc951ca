"""The slot's health, and who the server is."""

from __future__ import annotations

import pytest
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
        start = create_slot(connection, every_database.name, plugin="pgoutput")
        every_database.execute("CREATE TABLE t AS SELECT generate_series(1, 10000)")
        health = slot_health(connection, every_database.name)
        assert health.confirmed_flush_lsn == start
        assert health.confirmed_flush_distance is not None
        assert health.confirmed_flush_distance > 100_000
        assert (health.restart_distance or 0) >= health.confirmed_flush_distance
        assert (health.plugin, health.active, health.wal_status) == ("pgoutput", False, "reserved")
        assert health.invalidation_reason is None
        assert health.server == server_identity(connection)
        assert health.server.timeline == 1
        assert health.server.server_version // 10000 == every_database.server.version
        assert health.server.system_identifier > 1 << 60


def test_oldest_transaction_shows(every_database: Database) -> None:
    with connected(SecretStr(every_database.dsn)) as connection, every_database.connect() as other:
        create_slot(connection, every_database.name, plugin="pgoutput")
        other.execute("BEGIN")
        other.execute("SELECT pg_sleep(0.2)")
        age = slot_health(connection, every_database.name).oldest_transaction_age
    assert age is not None
    assert age.total_seconds() >= 0.2
