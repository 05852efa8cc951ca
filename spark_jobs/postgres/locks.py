"""Advisory locks in the source database: one process at a time reads a slot, writes a table, or writes the cuts.

They end with their session, so a crash leaves none behind. Any role may take them.
https://www.postgresql.org/docs/current/functions-admin.html#FUNCTIONS-ADVISORY-LOCKS
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import psycopg

from spark_jobs.errors import CdcError, LakeError, LakeInUseError, SlotInUseError
from spark_jobs.postgres.connection import Connection, source_errors
from spark_jobs.qualified_name import QualifiedName

_log = logging.getLogger(__name__)

# the slot's lock may be held briefly (to prepare) or long (to capture), the cuts' lock only briefly
_WAIT_SECONDS = 10


def slot_lock(connection: Connection, slot: str) -> AbstractContextManager[None]:
    """Allows one reader of this slot at a time. Raises SlotInUseError when another keeps the lock."""
    in_use = SlotInUseError(
        f"another process is capturing from slot {slot}",
        hint="wait until it is done, or stop it; its session shows in pg_locks as an advisory lock",
    )
    return _lock(connection, slot, in_use)


def table_lock(connection: Connection, slot: str, name: QualifiedName) -> AbstractContextManager[None]:
    """Allows one writer of this table's Delta table at a time. Raises LakeInUseError at once when there is another."""
    in_use = LakeInUseError(
        f"{name} was left alone: another process is writing its Delta table",
        hint="run it again when that is done; its session shows in pg_locks as an advisory lock",
    )
    return _lock(connection, f"{slot}:table:{name}", in_use, waits=False)


def cuts_lock(connection: Connection, slot: str) -> AbstractContextManager[None]:
    """Allows one writer of the cuts at a time. Raises LakeError when another keeps the lock."""
    in_use = LakeError("another process is writing the cuts", hint="run it again when that is done")
    return _lock(connection, f"{slot}:cuts", in_use)


def log_lock(connection: Connection, slot: str) -> AbstractContextManager[None]:
    """Allows one process at a time to write files of the change log anew. Raises LakeInUseError if there is another."""
    in_use = LakeInUseError("another process maintains the change log", hint="run it again when that is done")
    return _lock(connection, f"{slot}:log", in_use)


@contextmanager
def _lock(connection: Connection, what: str, in_use: CdcError, *, waits: bool = True) -> Iterator[None]:
    digest = hashlib.blake2b(f"postgres-cdc:{what}".encode(), digest_size=8).digest()
    key = int.from_bytes(digest, "big", signed=True)
    if not (_locked_in_time(connection, key) if waits else _locked_at_once(connection, key)):
        raise in_use
    try:
        yield
    finally:
        try:
            connection.execute("SELECT pg_advisory_unlock(%s)", [key])
        except psycopg.OperationalError:
            # harmless, whenever it was lost: each commit was checked against the lake's state
            _log.warning("the session that held an advisory lock was lost, and the lock with it")


def _locked_at_once(connection: Connection, key: int) -> bool:
    with source_errors("a lock could not be taken"):
        return bool(connection.execute("SELECT pg_try_advisory_lock(%s)", [key]).fetchall()[0][0])


def _locked_in_time(connection: Connection, key: int) -> bool:
    with source_errors("a lock could not be taken"), connection.transaction():
        connection.execute("SELECT set_config('lock_timeout', %s, true)", [f"{_WAIT_SECONDS}s"])
        try:
            with connection.transaction():
                connection.execute("SELECT pg_advisory_lock(%s)", [key])
        except psycopg.errors.LockNotAvailable:
            return False
    return True
