"""The least privileges as the quick start lists them, granted to a role of a test's own."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.fixtures.servers import Database

PAGE = Path(__file__).parent.parent / "docs" / "quick-start.md"
# what its statements speak of
ROLE, TABLES, PUBLICATION = "cdc", ("orders", "items"), "shop"


def documented_statements() -> list[str]:
    """The page's block of SQL that creates the role, without comments."""
    (creating,) = (
        text for text in re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL) if "CREATE ROLE" in text
    )
    block = re.sub(r"--.*", "", creating)
    return [" ".join(statement.split()) for statement in block.split(";") if statement.strip()]


@contextmanager
def documented_role(database: Database, password: str) -> Iterator[str]:
    """The dsn of a role that has what the page says, and not what every role has by default beside CONNECT and
    USAGE of the schema pg_catalog. The publication is named like the database."""
    role = f"cdc_{uuid.uuid4().hex[:12]}"
    quoted = sql.Literal(password).as_string()
    database.execute(
        "REVOKE ALL ON SCHEMA public FROM PUBLIC",
        f"REVOKE TEMPORARY, CREATE ON DATABASE {database.name} FROM PUBLIC",
        *(_for_this_test(statement, role, quoted, database.name) for statement in documented_statements()),
    )
    try:
        yield database.server.dsn(database.name, user=role, password=password)
    finally:
        database.execute(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def documented_tables(database: Database) -> Database:
    """With the tables that these statements speak of, and fifty rows in each."""
    database.execute(
        *(f"CREATE TABLE {table} (id int PRIMARY KEY, note text)" for table in TABLES),
        *(f"INSERT INTO {table} SELECT g, 'x' FROM generate_series(1, 50) g" for table in TABLES),
    )
    return database


def without_password(dsn: str) -> str:
    given: dict[str, Any] = dict(conninfo_to_dict(dsn))
    del given["password"]
    return make_conninfo(**given)


def _for_this_test(statement: str, role: str, password: str, publication: str) -> str:
    named = re.sub(rf"\b{ROLE}\b", role, statement)
    named = re.sub(rf"\bPUBLICATION {PUBLICATION}\b", f"PUBLICATION {publication}", named)
    return named.replace("'...'", password)
