"""The table whose changes are captured, and the slots of its database."""

from __future__ import annotations

from tests.fixtures.servers import Database

TABLE = "CREATE TABLE orders (id bigint PRIMARY KEY, amount numeric(10,2), note text)"


def slots(database: Database) -> int:
    return len(database.execute(f"SELECT 1 FROM pg_replication_slots WHERE database = '{database.name}'"))
