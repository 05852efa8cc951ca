"""Open Delta tables with ``deltalake``, without a JVM. All existing tables are opened here, so that storage options
have one place."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from spark_jobs.delta.files import REACHABLE
from spark_jobs.errors import LakeError

_log = logging.getLogger(__name__)

# deltalake opens a table by reading each commit since the last checkpoint twice
CHECKPOINT_INTERVAL = "10"
_INTERVAL = "delta.checkpointInterval"


def open_table(path: str, what: str, *, hint: str = REACHABLE, version: int | None = None) -> DeltaTable | None:
    """The table at ``path``, at ``version`` or its newest one; None if there is no table. Raises LakeError, which calls
    the table ``what``."""
    with table_errors(f"{what} cannot be read", hint=hint):
        try:
            return DeltaTable(path, version)
        except TableNotFoundError:
            return None


@contextmanager
def table_errors(what: str, *, hint: str = REACHABLE) -> Iterator[None]:
    """Raise errors of ``deltalake`` and Arrow, and those of damaged commits, as LakeError: ``what`` and their text."""
    try:
        yield
    except (DeltaError, OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise LakeError(f"{what}: {error}", hint=hint) from None


def keep_log_short(table: DeltaTable, version: int) -> None:
    """Write a checkpoint after every tenth commit, as Spark does; where the table has no interval of its own,
    ``deltalake`` would write one after every hundredth."""
    if _INTERVAL in table.metadata().configuration or version % int(CHECKPOINT_INTERVAL):
        return
    try:
        table.create_checkpoint()
    except DeltaError as error:  # the commit is made; the next checkpoint covers it too
        _log.warning("%s has no checkpoint of version %d: %s", table.table_uri, version, error)
