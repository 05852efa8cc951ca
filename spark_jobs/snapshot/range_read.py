"""Reads one range of a table in an exported snapshot. Runs on executors: standard library, pyarrow and ADBC only."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import pyarrow as pa
from adbc_driver_postgresql import dbapi

from spark_jobs.errors import ConnectionLostError, SourceError
from spark_jobs.postgres.bulk_read import BulkConnect, run, streamed


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


def read_range(
    connect: BulkConnect, snapshot_name: str | None, query: RangeQuery
) -> Generator[pa.RecordBatch, None, None]:
    """The rows as the snapshot shows them, in Arrow batches of a few MB; without a name, as a new snapshot does. Close
    it if it is not read to its end.

    Raises SourceError, also after the last batch; then discard all rows.
    https://www.postgresql.org/docs/current/sql-set-transaction.html
    """
    with connect() as connection:
        run(connection, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        if snapshot_name is not None:
            _set_snapshot(connection, snapshot_name)
        with streamed(connection, marked(snapshot_name, query.label, query.rows)) as reader:
            yield from reader
        run(connection, "COMMIT")
        try:
            run(connection, query.check)  # after COMMIT, so it reads the present catalogue
        except SourceError as error:
            raise SourceError(
                f"{query.table} was rewritten by DDL while its snapshot was read", hint="run it again"
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
