"""A walsender session, for the few things that only the replication protocol offers.

https://www.postgresql.org/docs/current/protocol-replication.html
"""

from __future__ import annotations

import re
import select
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import pq
from pydantic import SecretStr

from spark_jobs.errors import PreconditionError, SourceError, SourceUnreachableError
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.postgres.connection import connect_failure, conninfo, unconnected_hint
from spark_jobs.postgres.password_command import opened
from spark_jobs.postgres.refusals import lost_connection
from spark_jobs.postgres.session_settings import PIN_STATEMENT

# a line of a timeline history file: the timeline, the LSN at which the next one left it, and why
_LEFT = re.compile(rb"^\s*(\d+)\s+([0-9A-Fa-f]+/[0-9A-Fa-f]+)", re.MULTILINE)


@contextmanager
def replication_connection(dsn: SecretStr) -> Iterator[pq.abc.PGconn]:
    """A walsender session with all settings pinned. It supports only the simple query protocol, so this is libpq
    without psycopg's cursors. Raises SourceError."""
    pgconn = opened(conninfo(dsn, replication="database"), _connect)
    try:
        execute(pgconn, PIN_STATEMENT)
        yield pgconn
    finally:
        pgconn.finish()


def _connect(text: str) -> pq.abc.PGconn:
    pgconn = pq.PGconn.connect(text.encode())
    if pgconn.status == pq.ConnStatus.OK:
        return pgconn
    message = pgconn.error_message.decode(errors="replace")
    pgconn.finish()
    raise _refused(text, message)


def answer(pgconn: pq.abc.PGconn, command: str) -> pq.abc.PGresult:
    """The result of one command. Unlike ``exec_``, this can be interrupted while the server is working."""
    send(pgconn, command)
    while not has_answered(pgconn, None):
        pass
    return sent_answer(pgconn)


def send(pgconn: pq.abc.PGconn, command: str) -> None:
    """Begin one command; ``has_answered`` tells when ``sent_answer`` has its result."""
    with _connection_lost():
        pgconn.send_query(command.encode())


def has_answered(pgconn: pq.abc.PGconn, seconds: float | None) -> bool:
    """Whether the server has answered what was sent, or does so within ``seconds`` (None: until it says something)."""
    with _connection_lost():
        if pgconn.is_busy():
            ready = select.poll()  # select() refuses file descriptors from 1024 on
            ready.register(pgconn.socket, select.POLLIN)
            ready.poll(None if seconds is None else seconds * 1000)
            pgconn.consume_input()
        return not pgconn.is_busy()


def sent_answer(pgconn: pq.abc.PGconn) -> pq.abc.PGresult:
    """The result of what was sent. Waits for it."""
    with _connection_lost():
        result = pgconn.get_result()
        while pgconn.get_result() is not None:
            pass
    if result is None:
        raise lost_connection("the replication connection", "no result")
    return result


@contextmanager
def _connection_lost() -> Iterator[None]:
    try:
        yield
    except psycopg.OperationalError as error:
        raise lost_connection("the replication connection", str(error)) from None


def execute(pgconn: pq.abc.PGconn, command: str) -> None:
    """Execute a command whose result does not matter. Raises SourceError if the server refuses it."""
    result = answer(pgconn, command)
    if result.status not in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
        raise SourceError(f"a setting of the replication connection was refused: {refusal(result)}")


def refusal(result: pq.abc.PGresult) -> str:
    """Why the server refused the command, in its own words."""
    return (result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b"no reason given").decode(errors="replace")


def left_timeline_at(dsn: SecretStr, timeline: int, current: int) -> Lsn | None:
    """The LSN up to which the server's WAL, now on timeline ``current``, is that of ``timeline``; None if it never was.

    It is read from the history file that each promotion or point-in-time recovery writes. Raises SourceError.
    """
    with replication_connection(dsn) as pgconn:
        result = answer(pgconn, f"TIMELINE_HISTORY {current}")
    history = result.get_value(0, 1) if result.status == pq.ExecStatus.TUPLES_OK else None
    if history is None:
        raise SourceError(f"the history of timeline {current} could not be read: {refusal(result)}")
    left = {int(number): Lsn.parse(lsn.decode()) for number, lsn in _LEFT.findall(history)}
    return left.get(timeline)


def _refused(text: str, message: str) -> SourceError:
    reason = connect_failure(message)
    if "permission denied" in reason or "replication role" in reason:
        return PreconditionError(
            f"no replication connection: {reason}", hint="`postgres-cdc doctor` says how the role gets REPLICATION"
        )
    return SourceUnreachableError(
        f"no replication connection to PostgreSQL: {reason}", hint=unconnected_hint(text, reason)
    )
