"""One part of a table, read in an exported snapshot. Runs on executors: standard library, pyarrow and ADBC only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from spark_jobs.errors import SourceError
from spark_jobs.postgres.bulk_read import bulk_connection, run, streamed


@dataclass(frozen=True)
class RangeQuery:
    """What ``snapshot_export.range_query`` made: ``rows`` selects those of one range of ``table``, ``check`` divides by
    zero when they may not have been all."""

    table: str
    rows: str
    check: str


def read_range(conninfo: str, snapshot_name: str, query: RangeQuery) -> Iterator[pa.RecordBatch]:
    """The rows as they were in the snapshot, in Arrow batches of a few MB.

    ``conninfo`` is what ``connection.conninfo`` made. Raises SourceError, also at the end: then none of them counts.
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
            run(connection, query.check)  # of now, not of then
        except SourceError as error:
            raise SourceError(
                f"{query.table} was rewritten by DDL while its snapshot was read", hint="run it again"
            ) from error
