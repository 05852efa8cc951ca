"""The tables and the changes: seven columns, a bigint key, inserts, random updates, deletes, inserts."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg

from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.qualified_name import QualifiedName

MIXED = QualifiedName("public", "mixed")
_COLUMNS = """(id bigint PRIMARY KEY, n integer, amount numeric(12,2), ratio double precision, note text, paid boolean,
  placed timestamptz)"""
ROW = """g, (g % 1000)::int, (g % 100000) * 1.01, g / 7.0, 'note ' || md5(g::text), g % 3 = 0,
  timestamptz '2024-01-01' + g * interval '1 second'"""


@dataclass(frozen=True)
class Size:
    """``unit`` is a hundred thousand at full size: the table has 10 units of rows, the changes are 9 units."""

    unit: int = 100_000

    @property
    def rows(self) -> int:
        return 10 * self.unit

    @property
    def changes(self) -> int:
        return 9 * self.unit


def make_table(server: PostgresServer, table: QualifiedName, rows: int) -> None:
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {table} {_COLUMNS}")
        connection.execute(f"INSERT INTO {table} SELECT {ROW} FROM generate_series(1, {rows}) g")
        connection.execute(f"ANALYZE {table}")


def copy_out(server: PostgresServer, table: QualifiedName) -> None:
    """The least that reading a table costs: the limit of what reads all of it."""
    with psycopg.connect(server.dsn()) as connection, connection.cursor().copy(f"COPY {table} TO STDOUT") as copy:
        for _ in copy:
            pass


def make_changes(server: PostgresServer, size: Size, table: QualifiedName = MIXED, *, prepared: bool = False) -> None:
    """9 units of changes in 90 transactions: 3 of inserts, 4 of updates of random rows, 1 of deletes, 1 of inserts.

    ``prepared``: all committed in two phases.
    """
    step = size.unit // 10
    update = f"UPDATE {table} SET n = n + 1, amount = amount + 1, paid = NOT paid"
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute("SELECT setseed(0.5)")
        top = connection.execute(f"SELECT max(id) FROM {table}").fetchall()[0][0]
        for change in ["insert"] * 30 + [update] * 40 + [f"DELETE FROM {table}"] * 10 + ["insert"] * 10:
            connection.execute("BEGIN")
            if change == "insert":
                _insert(connection, table, top, step)
                top += step
            else:
                _on_random_rows(connection, table, change, top, step)
            for end in ("PREPARE TRANSACTION 'change'", "COMMIT PREPARED 'change'") if prepared else ("COMMIT",):
                connection.execute(end)


def make_inserts(server: PostgresServer, size: Size, table: QualifiedName) -> None:
    """9 units of inserts in 90 transactions."""
    step = size.unit // 10
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        top = connection.execute(f"SELECT max(id) FROM {table}").fetchall()[0][0]
        for first in range(top, top + size.changes, step):
            _insert(connection, table, first, step)


def one_transaction(server: PostgresServer, table: QualifiedName, rows: int) -> None:
    with psycopg.connect(server.dsn()) as connection:
        connection.execute(f"INSERT INTO {table} SELECT {ROW} FROM generate_series(1, {rows}) g")


def _insert(connection: psycopg.Connection[tuple[object, ...]], table: QualifiedName, top: int, count: int) -> None:
    connection.execute(f"INSERT INTO {table} SELECT {ROW} FROM generate_series({top + 1}, {top + count}) g")


def _on_random_rows(
    connection: psycopg.Connection[tuple[object, ...]], table: QualifiedName, statement: str, top: int, count: int
) -> None:
    """Rows that are there: the ones nearest to random keys would cluster, so a sample of those that are."""
    chosen = f"SELECT id FROM {table} WHERE random() < {3 * count / top} LIMIT {count}"
    changed = connection.execute(f"{statement} WHERE id IN ({chosen})").rowcount
    if changed != count:
        raise AssertionError(f"the workload is short: {changed} of {count}")
