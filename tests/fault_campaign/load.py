"""What happens to the source in one run: random transactions, of every way to end, from the run's own seed."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import psycopg

from tests.fault_campaign.statements import NAMES, change_of, ddl, rewriting_ddl, spooled_rows, staged_rows
from tests.fixtures.servers import Database

Ending = Literal["commit", "rollback", "prepare", "commit prepared", "rollback prepared"]
Bulk = Literal["none", "staged", "spooled"]

_TRANSACTIONS = 14
_TABLES_OF_A_RUN = 3
_IDS_OF_A_RUN = 30_000
_ENDINGS: dict[Ending, int] = {"commit": 14, "rollback": 1, "prepare": 3, "commit prepared": 2, "rollback prepared": 1}
_DDL, _REWRITE, _MESSAGE, _SAVEPOINT = 0.3, 0.06, 0.25, 0.15
_LONGEST_PAUSE = 0.15
# whatever holds a lock: a prepared transaction of ours, a snapshot that is read
_LOCK_TIMEOUT = "SET lock_timeout = '300ms'"
_ANSWER_SECONDS = 90


@dataclass(frozen=True)
class Transaction:
    """``statements`` in order, then how they end; ``name`` is its gid, where it is prepared. One that resolves another
    has no statements."""

    name: str
    statements: tuple[str, ...]
    ending: Ending


def transactions(run: int, rng: random.Random, bulk: Bulk = "none") -> list[Transaction]:
    """Those of one run. What it has prepared it mostly resolves itself; the rest is left to a later one."""
    tables, first = rng.sample(NAMES, _TABLES_OF_A_RUN), (run + 1) * _IDS_OF_A_RUN
    made = [_transaction(f"{run}-{number}", tables, first + 100 * number, rng) for number in range(_TRANSACTIONS)]
    if rng.random() < _DDL:
        made.insert(rng.randrange(_TRANSACTIONS), Transaction(f"{run}-ddl", (ddl(rng),), "commit"))
    if rng.random() < _REWRITE:
        made.insert(rng.randrange(_TRANSACTIONS), Transaction(f"{run}-rewrite", (rewriting_ddl(rng),), "commit"))
    if bulk != "none":
        rows = staged_rows(first + 5_000) if bulk == "staged" else spooled_rows(first + 5_000)
        made.insert(0, Transaction(f"{run}-bulk", rows, "commit"))
    return made


def _transaction(name: str, tables: Sequence[str], first: int, rng: random.Random) -> Transaction:
    ending = rng.choices(list(_ENDINGS), list(_ENDINGS.values()))[0]
    if ending in ("commit prepared", "rollback prepared"):
        return Transaction(name, (), ending)
    statements = [change_of(rng.choice(tables), first + 20 * number, rng) for number in range(rng.randrange(1, 5))]
    if rng.random() < _SAVEPOINT:
        undone = change_of(rng.choice(tables), first + 90, rng)
        statements += ["SAVEPOINT undone", undone, "ROLLBACK TO undone"]
    if rng.random() < _MESSAGE:
        content = f"message {name}"
        statements.append(f"INSERT INTO told VALUES ('{content}')")
        statements.append(f"SELECT pg_logical_emit_message(true, 'outbox', '{content}')")
    return Transaction(name, tuple(statements), ending)


@dataclass
class Performed:
    """``blocked``: transactions that gave way to a lock; ``lost``: whose session the server's fall ended."""

    done: int = 0
    blocked: int = 0
    lost: int = 0


def perform(database: Database, work: Sequence[Transaction], rng: random.Random, *, pauses: bool) -> Performed:
    """Each in turn. After a fall of the server it goes on with the next one: whether the interrupted one was committed
    is for the comparison with the source to see."""
    performed, left = Performed(), list(work)
    while left:
        with _connection(database) as connection:
            while left:
                if pauses:
                    time.sleep(rng.uniform(0, _LONGEST_PAUSE))
                transaction = left.pop(0)
                try:
                    _perform(connection, transaction, rng)
                except psycopg.errors.LockNotAvailable:
                    performed.blocked += 1
                except psycopg.OperationalError:
                    performed.lost += 1
                    break
                else:
                    performed.done += 1
    return performed


def _perform(connection: psycopg.Connection[tuple[object, ...]], transaction: Transaction, rng: random.Random) -> None:
    if transaction.ending in ("commit prepared", "rollback prepared"):
        waiting = connection.execute(_PREPARED).fetchall()
        if waiting:
            connection.execute(f"{transaction.ending} '{rng.choice(waiting)[0]}'")
        return
    connection.execute("BEGIN")
    try:
        for statement in transaction.statements:
            connection.execute(statement)
    except psycopg.errors.LockNotAvailable:
        connection.execute("ROLLBACK")  # fails if the server falls just now: then the session is what is lost
        raise
    connection.execute(
        f"PREPARE TRANSACTION '{transaction.name}'" if transaction.ending == "prepare" else transaction.ending
    )


_PREPARED = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database() ORDER BY gid"


def resolve_all(database: Database) -> None:
    """Every prepared transaction is committed: before lake and source are compared, and before DDL waits for it."""
    for (gid,) in database.execute(_PREPARED):
        database.execute(f"COMMIT PREPARED '{gid}'")


def _connection(database: Database) -> psycopg.Connection[tuple[object, ...]]:
    """As soon as the server answers."""
    deadline = time.monotonic() + _ANSWER_SECONDS
    while True:
        try:
            connection = database.connect()
        except psycopg.OperationalError:
            assert time.monotonic() < deadline, "the server does not come back"
            time.sleep(0.1)
        else:
            connection.execute(_LOCK_TIMEOUT)
            return connection
