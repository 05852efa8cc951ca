"""Reads one range of a table in an exported snapshot. Runs on executors: standard library, pyarrow and ADBC only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from spark_jobs.errors import SourceError
from spark_jobs.postgres.bulk_read import bulk_connection, run, streamed


@dataclass(frozen=True)
class RangeQuery:
    """The result of ``export.range_query``: ``rows`` selects the rows of one range of ``table``; ``check`` divides by
    zero if rows may have been missing."""

    table: str
    rows: str
    check: str


def read_range(conninfo: str, snapshot_name: str, query: RangeQuery) -> Iterator[pa.RecordBatch]:
    """The rows as the snapshot shows them, in Arrow batches of a few MB.

    ``conninfo``: a result of ``connection.conninfo``. Raises SourceError, also after the last batch; then discard all
    rows.
    https://www.postgresql.org/docs/current/sql-set-transaction.html
    """
    quoted = "'" + snapshot_name.replace("'", "''") + "'"
    with bulk_connection(conninfo) as connection:
        run(connection, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        run(connection, f"SET TRANSACTION SNAPSHOT {quoted}")
        with streamed(connection, query.rows) as reader:
            yield from reader
        run(connection, "COMMIT")
        try:
            run(connection, query.check)  # after COMMIT, so it reads the present catalogue
        except SourceError as error:
            raise SourceError(
                f"{query.table} was rewritten by DDL while its snapshot was read", hint="run it again"
            ) from error
