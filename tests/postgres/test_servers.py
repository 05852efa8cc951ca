"""The servers that the other tests stand on."""

from __future__ import annotations

import pytest

from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres


def test_server_is_of_the_asked_version_and_decodes(every_database: Database) -> None:
    assert every_database.execute("SHOW wal_level") == [("logical",)]
    [(version,)] = every_database.execute("SELECT current_setting('server_version_num')::int / 10000")
    assert version == every_database.server.version
    [(slot,)] = every_database.execute(
        f"SELECT slot_name FROM pg_create_logical_replication_slot('{every_database.name}', 'pgoutput')"
    )
    assert slot == every_database.name
