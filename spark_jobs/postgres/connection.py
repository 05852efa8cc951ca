"""Connections for control statements, with pinned settings and errors of our own types."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import SecretStr

from spark_jobs.errors import (
    ConfigurationError,
    PreconditionError,
    SlotInUseError,
    SourceBusyError,
    SourceError,
    SourceUnreachableError,
)
from spark_jobs.postgres.command_dsn import CommandDsn
from spark_jobs.postgres.password_command import CommandConninfo, Conninfo, opened
from spark_jobs.postgres.pooler import pooler_of
from spark_jobs.postgres.refusals import connect_hint, is_lost, lost_connection, refusal_hint
from spark_jobs.postgres.session_settings import APPLICATION_NAME, PIN_STATEMENT, startup_options
from spark_jobs.retries import again_when_busy

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

_KEEPALIVE = {"keepalives": 1, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 6}
_CONNECT_SECONDS = 10
STATEMENT_TIMEOUT = "15min"  # long, because creating a slot waits for the transactions that are open
_CALLED_HINT = (
    "a function of the database runs with this statement, most likely of an event trigger (see pg_event_trigger):"
    " mend it, or create the publication yourself"
)
# a URI whose password has an @ or a / as it is: libpq takes what follows for the host or the database, and messages
# name these
_WITH_A_BARE_SIGN = re.compile(r"postgres(ql)?://[^@/]*[@/][^?]*@")
_BUSY = (
    "the database system is starting up",
    "too many clients",
    "too many connections for",
    "remaining connection slots",
)


def conninfo(dsn: SecretStr, **changes: Any) -> Conninfo:
    """The connection string with our defaults for what it leaves out, and overridden by our settings and ``changes``.

    A session needs nothing else, not even on an executor; but if a command prints the password, the command has to be
    there. Raises ConfigurationError.
    """
    given = parameters_of(dsn)
    defaults = {"application_name": APPLICATION_NAME, "connect_timeout": _CONNECT_SECONDS, **_KEEPALIVE}
    options = startup_options(str(given.get("options") or os.environ.get("PGOPTIONS", "")))
    text = make_conninfo(**{**defaults, **given, "options": options, **changes})
    return CommandConninfo(text, dsn.command) if isinstance(dsn, CommandDsn) else text


def parameters_of(dsn: SecretStr) -> dict[str, Any]:
    """What the connection string itself says, by libpq's keywords. Raises ConfigurationError."""
    text = dsn.get_secret_value()
    try:
        parameters = None if _WITH_A_BARE_SIGN.match(text) else conninfo_to_dict(text)
    except psycopg.ProgrammingError:  # its message quotes the string, password and all
        parameters = None
    if parameters is None:
        raise ConfigurationError(
            "source.dsn is not a PostgreSQL connection string",
            hint="expected postgresql://user:password@host:port/database or host=... dbname=...; in a URI, @ / and % of"
            " a password are written %40 %2F %25",
        )
    return parameters


@contextmanager
def connected(dsn: SecretStr, *, statement_timeout: str = STATEMENT_TIMEOUT) -> Iterator[Connection]:
    """A session in autocommit mode with all settings pinned, closed at the end. No statement may take longer than
    ``statement_timeout``.

    The driver's errors inside the context are raised as SourceError or one of its subclasses.
    """
    connection = opened(conninfo(dsn), _connect)
    try:
        with source_errors("a statement failed"):
            connection.execute(f"{PIN_STATEMENT}, set_config('statement_timeout', %s, false)", [statement_timeout])
            yield connection
    finally:
        connection.close()


@contextmanager
def source_errors(what: str) -> Iterator[None]:
    """Raise the driver's errors as ours. ``what`` begins the message and says what failed."""
    try:
        yield
    except psycopg.Error as error:
        raise source_error(error, what) from None


def source_error(error: psycopg.Error, what: str) -> SourceError:
    """psycopg's error as one of ours, with its primary message, which never holds the connection string."""
    primary = error.diag.message_primary or str(error)
    if is_lost(error.sqlstate, primary):
        return lost_connection(what, primary)
    called = _called_function(error)
    message = f"{what}: {primary} (in {called})" if called else f"{what}: {primary}"
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return PreconditionError(message, hint="`postgres-cdc doctor` lists what the role needs")
    if isinstance(error, psycopg.errors.ObjectInUse):
        return SlotInUseError(message, hint="another process reads this slot; stop it, or wait until it is done")
    hint = refusal_hint(error.sqlstate, primary) or (_CALLED_HINT if called else "")
    if isinstance(error, psycopg.errors.ConfigurationLimitExceeded):
        return PreconditionError(message, hint=hint)
    return SourceError(message, hint=hint)


def _called_function(error: psycopg.Error) -> str:
    """The function of the database's own that has failed, as the server names it, with the line; empty if none has."""
    context = (error.diag.context or "").splitlines()
    return next((line for line in context if " function " in line and '"' not in line), "")


@again_when_busy
def _connect(text: str) -> Connection:
    try:
        return psycopg.connect(text, autocommit=True)
    except psycopg.OperationalError as error:
        why = connect_failure(str(error))
        kind = SourceBusyError if any(sign in str(error) for sign in _BUSY) else SourceUnreachableError
        raise kind(f"cannot connect to PostgreSQL: {why}", hint=unconnected_hint(text, why)) from None


def unconnected_hint(text: str, why: str) -> str:
    """The hint for a connection string with which no connection was made."""
    pooler = pooler_of(text)
    return pooler.hint if pooler is not None else connect_hint(why)


def connect_failure(message: str) -> str:
    """The line of libpq's message with the cause; it names host and user, never the password."""
    # libpq indents its guesses ("Is the server running on that host ...?") with a tab, and puts its advice ("Either
    # provide the file, ...") on a line of its own
    raw_lines = [line for line in message.splitlines() if line.strip() and not line.startswith("\t")]
    lines = [line.strip().removeprefix("- ") for line in raw_lines]
    fatal = [line for line in lines if "FATAL:" in line]
    failed = [line for line in lines if " failed: " in line]
    return (fatal or failed or lines or ["no reason given"])[-1]


def clock_microseconds(connection: Connection) -> int:
    """The server's clock, in microseconds since 1970, UTC."""
    row = connection.execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint").fetchone()
    assert row is not None
    return int(row[0])
