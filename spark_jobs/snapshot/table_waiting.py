"""A table whose snapshot waits for a transaction of somebody else: it is reported by name, and not as an error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_jobs.errors import CdcError, SnapshotGoesOnError, SnapshotWaitsError
from spark_jobs.postgres.open_transactions import OpenTransaction
from spark_jobs.qualified_name import QualifiedName


@dataclass(frozen=True)
class TableWaiting:
    """``why`` the table needs a snapshot and what that waits for, in a line, and ``hint``: how to end the wait.
    ``transaction``: the oldest that is open, None if it is not known, or if the table ``goes_on``: then it waits for
    nobody, as a part of it is read.

    The table keeps the rows that it has, and the next run takes its snapshot.
    """

    name: QualifiedName
    why: str
    hint: str
    transaction: OpenTransaction | None
    goes_on: bool = False

    def __str__(self) -> str:
        if self.goes_on:
            return f"{self.name} is read in chunks: {self.why}; {self.hint}"
        return f"{self.name} waits for its snapshot: {self.why}; {self.hint}"


def tables_waiting(
    errors: Mapping[QualifiedName, CdcError | None], transaction: OpenTransaction | None
) -> tuple[TableWaiting, ...]:
    """Those of the tables with ``errors`` that wait for a snapshot."""
    return tuple(
        TableWaiting(name, error.what, error.hint, None if goes_on else transaction, goes_on)
        for name, error in errors.items()
        if isinstance(error, SnapshotWaitsError)
        for goes_on in [isinstance(error, SnapshotGoesOnError)]
    )
