"""Keeps two processes from writing one table, or the cuts, at once: cron beside Dagster, a sync that overran.

Exactly once rests on it: which windows a commit covers follows from the table's state as it was read before.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from spark_jobs.configuration import Source
from spark_jobs.errors import SourceUnreachableError
from spark_jobs.postgres.connection import Connection, connected
from spark_jobs.postgres.locks import cuts_lock, table_lock
from spark_jobs.qualified_name import QualifiedName

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WriteGuard:
    """Locks of ``slot`` in the source database; without a connection there are none."""

    slot: str
    connection: Connection | None

    @contextmanager
    def table(self, name: QualifiedName) -> Iterator[None]:
        """Nobody else writes this table meanwhile. Raises LakeError when somebody does."""
        with ExitStack() as held:
            if self.connection is not None:
                held.enter_context(table_lock(self.connection, self.slot, name))
            yield

    @contextmanager
    def cuts(self) -> Iterator[None]:
        """Nobody else writes the cuts meanwhile. Raises LakeError."""
        with ExitStack() as held:
            if self.connection is not None:
                held.enter_context(cuts_lock(self.connection, self.slot))
            yield


# for who is alone with the lake
UNGUARDED = WriteGuard("", None)


@contextmanager
def write_guard(source: Source) -> Iterator[WriteGuard]:
    """A source that cannot be reached guards nothing, and does not keep what is landed from being applied."""
    with ExitStack() as session:
        try:
            connection = session.enter_context(connected(source.dsn))
        except SourceUnreachableError as error:
            _log.warning("%s; nothing keeps a second process from writing the same tables", error)
            connection = None
        yield WriteGuard(source.slot, connection)
