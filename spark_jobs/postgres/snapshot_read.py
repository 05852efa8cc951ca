"""One part of a table, read in an exported snapshot. Runs on executors: standard library, pyarrow and ADBC only."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from spark_jobs.postgres.bulk_read import bulk_connection, run, streamed


def read_range(conninfo: str, snapshot_name: str, query: str) -> Iterator[pa.RecordBatch]:
    """The rows of ``query`` as they were in the snapshot, in Arrow batches of a few MB.

    ``conninfo`` is what ``connection.conninfo`` made; ``query`` what ``snapshot_export.range_query`` made.
    https://www.postgresql.org/docs/current/sql-set-transaction.html
    """
    quoted = "'" + snapshot_name.replace("'", "''") + "'"
    with bulk_connection(conninfo) as connection:
        run(connection, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        run(connection, f"SET TRANSACTION SNAPSHOT {quoted}")
        with streamed(connection, query) as reader:
            yield from reader
        run(connection, "COMMIT")
