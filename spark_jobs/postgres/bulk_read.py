"""Bulk reads: ADBC turns COPY BINARY into Arrow batches in C++. Also runs on executors, so no psycopg here.

Driver: https://arrow.apache.org/adbc/current/driver/postgresql.html
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TypeAlias

import adbc_driver_manager
import pyarrow as pa
from adbc_driver_postgresql import StatementOptions, dbapi

from spark_jobs.errors import PreconditionError, SlotInUseError, SourceError, SourceUnreachableError
from spark_jobs.postgres.password_command import Conninfo, opened
from spark_jobs.postgres.refusals import connect_hint, is_lost, lost_connection, refusal_hint
from spark_jobs.postgres.session_settings import ENCODING_OF_ROWS, PIN_STATEMENT

BulkConnect: TypeAlias = Callable[[], AbstractContextManager[dbapi.Connection]]

BATCH_BYTES = 4 << 20
_SERVER_MESSAGE = re.compile(r"(?:ERROR|FATAL):\s*(.+)")
_QUERY = re.compile(r"\bQuery was:.*|.*Failed to execute query '.*':", re.IGNORECASE | re.DOTALL)
_PRIVILEGE, _IN_USE = "42501", "55006"


@contextmanager
def bulk_connection(conninfo: Conninfo) -> Iterator[dbapi.Connection]:
    """A session in autocommit mode with all settings pinned. Raises SourceUnreachableError."""
    connection = opened(conninfo, _connected)
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def bulk_connections(conninfo: Conninfo) -> Iterator[BulkConnect]:
    """Yields a function that returns a ``bulk_connection`` with each call, from any thread. A session whose use ended
    without an error is used again: opening one takes a tenth of a second of this process's CPU, as the driver reads all
    of pg_type and pg_attribute. That is ten times as much as reading a small table takes."""
    idle: list[dbapi.Connection] = []

    @contextmanager
    def connect() -> Iterator[dbapi.Connection]:
        try:
            connection = idle.pop()
        except IndexError:
            connection = opened(conninfo, _connected)
        try:
            yield connection
        except BaseException:
            connection.close()
            _close(idle)  # whatever ended this session, such as a restart of the server, may have ended all
            raise
        idle.append(connection)

    try:
        yield connect
    finally:
        _close(idle)


def _connected(conninfo: str) -> dbapi.Connection:
    try:
        connection = dbapi.connect(conninfo, autocommit=True)
    except adbc_driver_manager.Error as error:
        message = _server_message(error)
        raise SourceUnreachableError(
            f"cannot connect to PostgreSQL for a bulk read: {message}", hint=connect_hint(message)
        ) from None
    try:
        run(connection, f"{PIN_STATEMENT}, pg_catalog.set_config('client_encoding', {ENCODING_OF_ROWS}, false)")
    except BaseException:
        connection.close()
        raise
    return connection


def _close(connections: list[dbapi.Connection]) -> None:
    while connections:
        with suppress(IndexError):  # another thread has taken it
            connections.pop().close()


def run(connection: dbapi.Connection, statement: str) -> None:
    """Execute one statement whose result does not matter. Raises SourceError."""
    with connection.cursor() as cursor:
        try:
            # not cursor.execute, which raises a query's errors only when its result is fetched
            cursor.adbc_statement.set_sql_query(statement)
            cursor.adbc_statement.execute_update()
        except adbc_driver_manager.Error as error:
            raise bulk_error(error) from None


@contextmanager
def streamed(
    connection: dbapi.Connection, query: str, batch_bytes: int = BATCH_BYTES
) -> Iterator[pa.RecordBatchReader]:
    """The rows of ``query`` as Arrow batches of about ``batch_bytes`` each, fetched while the reader is consumed.

    The reader is valid inside the context only. Raises SourceError, also while the reader is consumed.
    """
    with connection.cursor() as cursor:  # must stay referenced while its stream is read
        cursor.adbc_statement.set_options(**{StatementOptions.BATCH_SIZE_HINT_BYTES.value: str(batch_bytes)})
        try:
            cursor.execute(query)
            reader = cursor.fetch_record_batch()
        except adbc_driver_manager.Error as error:
            raise bulk_error(error) from None
        yield pa.RecordBatchReader.from_batches(reader.schema, _batches(reader))


def _batches(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    try:
        yield from reader
    except (OSError, pa.ArrowException, adbc_driver_manager.Error) as error:
        raise bulk_error(error) from None


def bulk_error(error: Exception) -> SourceError:
    """The driver's error as one of ours, with the server's message but not the query, which the driver's text holds."""
    message = _server_message(error)
    sqlstate = getattr(error, "sqlstate", None)
    # FATAL always ends the session; an empty message means that the server is gone
    if is_lost(sqlstate, message) or "FATAL:" in str(error) or not message:
        return lost_connection("a bulk read ended early", message)
    if sqlstate == _PRIVILEGE or message.startswith("permission denied"):
        return PreconditionError(
            f"PostgreSQL refused: {message}", hint="`postgres-cdc doctor` lists what the role needs"
        )
    if sqlstate == _IN_USE or "is active for PID" in message:
        return SlotInUseError(f"PostgreSQL refused: {message}", hint="wait until the other session ends, or end it")
    return SourceError(f"PostgreSQL refused: {message}", hint=refusal_hint(sqlstate, message))


def _server_message(error: Exception) -> str:
    text = str(error)
    match = _SERVER_MESSAGE.search(text)
    if match:
        return match[1].strip()
    # libpq's own message, without the query that the driver puts before or after it
    return _QUERY.sub("", text).replace("[libpq] ", "").strip()
