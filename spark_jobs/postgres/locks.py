"""Advisory locks in the source database: one process at a time reads a slot, writes a table, or writes the cuts.

They end with their session, so a crash leaves none behind. Any role may take them.
https://www.postgresql.org/docs/current/functions-admin.html#FUNCTIONS-ADVISORY-LOCKS
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from spark_jobs.errors import LakeError, LakeInUseError, SlotInUseError
from spark_jobs.postgres.connection import Connection, source_errors
from spark_jobs.qualified_name import QualifiedName

_log = logging.getLogger(__name__)

# the slot's lock may be held briefly (to prepare) or long (to capture), the cuts' lock only briefly
_WAIT_SECONDS = 10


@contextmanager
def slot_lock(connection: Connection, slot: str) -> Iterator[None]:
    """Allows one reader of this slot at a time. Raises SlotInUseError when another keeps the lock."""
    key = _key(slot)
    if not _locked_in_time(connection, key):
        raise SlotInUseError(
            f"another process is capturing from slot {slot}",
            hint="wait until it is done, or stop it; its session shows in pg_locks as an advisory lock",
        )
    with _unlocking(connection, key):
        yield


@contextmanager
def table_lock(connection: Connection, slot: str, name: QualifiedName) -> Iterator[None]:
    """Allows one writer of this table's Delta table at a time. Raises LakeInUseError when there is another."""
    key = _key(f"{slot}:table:{name}")
    with source_errors(f"the lock on {name} could not be taken"):
        locked = connection.execute("SELECT pg_try_advisory_lock(%s)", [key]).fetchall()[0][0]
    if not locked:
        raise LakeInUseError(
            f"{name} was left alone: another process is writing its Delta table",
            hint="run it again when that is done; its session shows in pg_locks as an advisory lock",
        )
    with _unlocking(connection, key):
        yield


@contextmanager
def cuts_lock(connection: Connection, slot: str) -> Iterator[None]:
    """Allows one writer of the cuts at a time. Raises LakeError when another keeps the lock."""
    key = _key(f"{slot}:cuts")
    if not _locked_in_time(connection, key):
        raise LakeError("another process is writing the cuts", hint="run it again when that is done")
    with _unlocking(connection, key):
        yield


@contextmanager
def log_lock(connection: Connection, slot: str) -> Iterator[None]:
    """Allows one process at a time to write files of the change log anew. Raises LakeInUseError if there is another."""
    key = _key(f"{slot}:log")
    if not _locked_in_time(connection, key):
        raise LakeInUseError("another process maintains the change log", hint="run it again when that is done")
    with _unlocking(connection, key):
        yield


def _key(what: str) -> int:
    digest = hashlib.blake2b(f"postgres-cdc:{what}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _locked_in_time(connection: Connection, key: int) -> bool:
    with source_errors("a lock could not be taken"), connection.transaction():
        connection.execute("SELECT set_config('lock_timeout', %s, true)", [f"{_WAIT_SECONDS}s"])
        try:
            with connection.transaction():
                connection.execute("SELECT pg_advisory_lock(%s)", [key])
        except psycopg.errors.LockNotAvailable:
            return False
    return True


@contextmanager
def _unlocking(connection: Connection, key: int) -> Iterator[None]:
    try:
        yield
    finally:
        try:
            connection.execute("SELECT pg_advisory_unlock(%s)", [key])
        except psycopg.OperationalError:
            # harmless, whenever it was lost: each commit was checked against the lake's state
            _log.warning("the session that held an advisory lock was lost, and the lock with it")
