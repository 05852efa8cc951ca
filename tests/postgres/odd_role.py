"""A role whose name needs quotes."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from psycopg import sql

from tests.fixtures.servers import Database


@contextmanager
def odd_role(database: Database) -> Iterator[str]:
    """A role of this test alone, whose name needs quotes, as an identifier."""
    name = sql.Identifier(f'Odd "{uuid.uuid4().hex[:8]}"').as_string()
    database.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'pw'")
    try:
        yield name
    finally:
        database.execute(f"DROP OWNED BY {name} CASCADE", f"DROP ROLE {name}")
