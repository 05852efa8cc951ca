"""Sessions of bulk reads that are used again."""

from __future__ import annotations

import pytest
from adbc_driver_postgresql import dbapi
from pydantic import SecretStr

from spark_jobs.errors import SourceError
from spark_jobs.postgres.bulk_read import bulk_connections, run, streamed
from spark_jobs.postgres.connection import conninfo
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres


def pid(connection: dbapi.Connection) -> int:
    with streamed(connection, "SELECT pg_backend_pid()") as rows:
        (found,) = rows.read_all().column(0).to_pylist()
    return int(found)


def test_they_are_used_again_until_one_fails(database: Database) -> None:
    with bulk_connections(conninfo(SecretStr(database.dsn))) as connect:
        with connect() as connection:
            first = pid(connection)
        with connect() as connection, connect() as another:
            assert pid(connection) == first
            second = pid(another)
            assert second != first
        with pytest.raises(SourceError, match="division by zero"), connect() as connection:
            run(connection, "SELECT 1/0")
        with connect() as connection:  # neither the one that failed nor one that was idle meanwhile
            third = pid(connection)
            assert third not in {first, second}
    wanted = f"SELECT count(*) FROM pg_stat_activity WHERE pid IN ({first}, {second}, {third})"
    while database.execute(wanted) != [(0,)]:  # a session ends a moment after its client
        pass
