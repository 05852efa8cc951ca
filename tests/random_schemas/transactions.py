"""Random transactions: with savepoints that are rolled back, in two phases, and DDL between their rows."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import psycopg

from tests.random_schemas.statements import change, ddl
from tests.random_schemas.table_now import Connection, TableNow

_Chance = random.Random

_DDL_SHARE = 0.12
_SAVEPOINT_SHARE = 0.2
_TWO_PHASE_SHARE = 0.15
_ROLLED_BACK_SHARE = 0.1


@dataclass
class History:
    """What was executed, in order, with what the server refused; ``prepared``: transactions that are still open."""

    statements: list[str] = field(default_factory=list)
    prepared: list[str] = field(default_factory=list)
    ddl: int = 0
    refused: int = 0

    def execute(self, connection: Connection, statement: str) -> None:
        """Raises psycopg.Error where the server refuses it."""
        self.statements.append(statement)
        try:
            connection.execute(statement)
        except psycopg.Error as error:
            self.refused += 1
            self.statements.append(f"-- refused: {str(error).splitlines()[0]}")
            raise


def transact(connection: Connection, chance: _Chance, tables: Sequence[str], history: History) -> None:
    """One transaction on these tables. What the server refuses rolls it back."""
    history.execute(connection, "BEGIN")
    try:
        for statement_of in _steps(chance):
            _step(connection, chance, chance.choice(tables), history, is_ddl=statement_of)
        _end(connection, chance, history)
    except psycopg.Error:
        history.execute(connection, "ROLLBACK")


def _steps(chance: _Chance) -> Iterator[bool]:
    """For each statement of a transaction whether it is DDL."""
    for _ in range(chance.choice((1, 1, 2, 4, 8))):
        yield chance.random() < _DDL_SHARE


def _step(connection: Connection, chance: _Chance, table: str, history: History, *, is_ddl: bool) -> None:
    within_savepoint = chance.random() < _SAVEPOINT_SHARE
    if within_savepoint:
        history.execute(connection, "SAVEPOINT s")
    now = TableNow.of(connection, table)
    if is_ddl:
        history.execute(connection, ddl(chance, now))
        history.ddl += 1
    else:
        history.execute(connection, change(chance, now))
    if within_savepoint:
        history.execute(connection, chance.choice(("ROLLBACK TO s", "RELEASE s")))


def _end(connection: Connection, chance: _Chance, history: History) -> None:
    drawn = chance.random()
    if drawn < _ROLLED_BACK_SHARE:
        history.execute(connection, "ROLLBACK")
    elif drawn < _ROLLED_BACK_SHARE + _TWO_PHASE_SHARE:
        gid = f"prepared {len(history.statements)}"
        history.execute(connection, f"PREPARE TRANSACTION '{gid}'")
        history.prepared.append(gid)
    else:
        history.execute(connection, "COMMIT")


def end_prepared(connection: Connection, chance: _Chance, history: History) -> None:
    """Commit or roll back what was prepared, in any order."""
    chance.shuffle(history.prepared)
    while history.prepared:
        gid = history.prepared.pop()
        history.execute(connection, f"{chance.choice(('COMMIT', 'COMMIT', 'ROLLBACK'))} PREPARED '{gid}'")
