"""Reads one range of a table in an exported snapshot. Runs on executors: standard library, pyarrow and ADBC only."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import pyarrow as pa
from adbc_driver_postgresql import dbapi

from spark_jobs.errors import AlteredWhileReadError, ConnectionLostError, SourceError
from spark_jobs.postgres.bulk_read import BulkConnect, run, streamed

Batches: TypeAlias = Generator[pa.RecordBatch, None, None]


@dataclass(frozen=True)
class RangeQuery:
    """The result of ``export.range_query``: ``rows`` selects the rows of one range of ``table``; ``check`` divides by
    zero if rows may have been missing. ``label`` identifies the range among all, by numbers; ``stored_bytes``: its size
    in the source."""

    table: str
    rows: str
    check: str
    label: str = ""
    stored_bytes: int = 0


def marked(snapshot_name: str | None, label: str, rows: str) -> str:
    """The query ``rows``, with a comment by which ``read_progress`` finds it in pg_stat_activity."""
    return f"/* {snapshot_name or 'chunk'} {label} */ {rows}"


class RangeReader(Protocol):
    """Reads rows of one range. To be closed if they are not read to their end."""

    def __call__(self, connect: BulkConnect, snapshot_name: str | None, query: RangeQuery, /) -> Batches: ...


def read_range(connect: BulkConnect, snapshot_name: str | None, query: RangeQuery) -> Batches:
    """The rows as the snapshot shows them, in Arrow batches of a few MB; without a name, as a new snapshot does. Close
    it if it is not read to its end.

    Raises SourceError, also after the last batch; then discard all rows.
    """
    with (
        range_transaction(connect, snapshot_name, query) as connection,
        streamed(connection, marked(snapshot_name, query.label, query.rows)) as reader,
    ):
        yield from reader


@contextmanager
def range_transaction(connect: BulkConnect, snapshot_name: str | None, query: RangeQuery) -> Iterator[dbapi.Connection]:
    """A session in which each statement shows the range as ``read_range`` has it. Raises as that does.
    https://www.postgresql.org/docs/current/sql-set-transaction.html
    """
    with connect() as connection:
        _require_same(connection, query)  # values of another column might not even be readable as this one's
        run(connection, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        if snapshot_name is not None:
            _set_snapshot(connection, snapshot_name)
        yield connection
        run(connection, "COMMIT")
        _require_same(connection, query)


def _require_same(connection: dbapi.Connection, query: RangeQuery) -> None:
    """Outside of the snapshot's transaction: the check is about the present catalogue."""
    try:
        run(connection, query.check)
    except ConnectionLostError:
        raise
    except SourceError as error:
        raise AlteredWhileReadError(
            f"{query.table} was rewritten by DDL, or its columns were renamed, while its snapshot was read",
            hint="run it again",
        ) from error


def _set_snapshot(connection: dbapi.Connection, snapshot_name: str) -> None:
    quoted = "'" + snapshot_name.replace("'", "''") + "'"
    try:
        run(connection, f"SET TRANSACTION SNAPSHOT {quoted}")
    except ConnectionLostError:
        raise
    except SourceError as error:
        raise SourceError(
            f"the exported snapshot is gone: its session was ended, or the server restarted ({error.what})",
            hint="run it again: tables that are not written yet are read from the start",
        ) from error
