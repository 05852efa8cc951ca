"""Keeps two processes from doing the same work: cron beside Dagster, a sync that runs too long.

This saves time and resources; correctness does not depend on it. A lock ends with its session, while Spark finishes
what it has begun. What a commit covers is compared with the table in the transaction that commits, see
``spark_jobs.lake.table_state``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from threading import Lock

from spark_jobs.configuration import Source
from spark_jobs.errors import SourceUnreachableError
from spark_jobs.postgres.connection import Connection, connected
from spark_jobs.postgres.locks import cuts_lock, log_lock, table_lock
from spark_jobs.qualified_name import QualifiedName

_log = logging.getLogger(__name__)

_UNGUARDED = "%s; nothing keeps a second process from writing the same tables"


@dataclass(frozen=True)
class WriteGuard:
    """Locks of ``slot`` in the source database. ``connect``: gives the session that has them; without one, or once it
    is lost, there are no locks."""

    slot: str
    connect: Callable[[], Connection | None]

    def table(self, name: QualifiedName) -> AbstractContextManager[None]:
        """Nobody else writes this table meanwhile. Raises LakeError if somebody already does."""
        return self._locked(lambda connection: table_lock(connection, self.slot, name))

    def cuts(self) -> AbstractContextManager[None]:
        """Nobody else writes the cuts meanwhile. Raises LakeError."""
        return self._locked(lambda connection: cuts_lock(connection, self.slot))

    def log(self) -> AbstractContextManager[None]:
        """Nobody else writes files of the change log anew meanwhile. Raises LakeError."""
        return self._locked(lambda connection: log_lock(connection, self.slot))

    @contextmanager
    def _locked(self, lock: Callable[[Connection], AbstractContextManager[None]]) -> Iterator[None]:
        with ExitStack() as locks:
            connection = self.connect()
            if connection is not None:
                try:
                    locks.enter_context(lock(connection))
                except SourceUnreachableError as error:
                    _log.warning(_UNGUARDED, error)
            yield


# for a caller that is alone with the lake
UNGUARDED = WriteGuard("", lambda: None)


@contextmanager
def write_guard(source: Source) -> Iterator[WriteGuard]:
    """Connects with the first lock, and again with the next lock after the session was lost. If the source cannot be
    reached, there are no locks, and what is landed is still applied."""
    opened: list[Connection | None] = []
    threads = Lock()

    def connection() -> Connection | None:
        with threads:
            if not opened or (opened[-1] is not None and opened[-1].closed):
                try:
                    opened.append(session.enter_context(connected(source.dsn)))
                except SourceUnreachableError as error:
                    _log.warning(_UNGUARDED, error)
                    opened.append(None)
            return opened[-1]

    with ExitStack() as session:
        yield WriteGuard(source.slot, connection)
