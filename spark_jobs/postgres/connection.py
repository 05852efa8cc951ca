"""Connections for control statements, with pinned settings and typed errors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import SecretStr
from tenacity import retry, retry_if_exception, stop_after_attempt, wait_exponential_jitter

from spark_jobs.errors import ConfigurationError, PreconditionError, SlotError, SourceError, SourceUnreachableError
from spark_jobs.postgres.session_settings import APPLICATION_NAME, PIN_STATEMENT, startup_options

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

_KEEPALIVE = {"keepalives": 1, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 6}
_CONNECT_SECONDS = 10
_CONTROL_STATEMENT_TIMEOUT = "15min"  # making a slot waits for transactions that are open already
_STARTING_UP = ("the database system is starting up", "too many clients", "remaining connection slots")


def conninfo(dsn: SecretStr, **changes: Any) -> str:
    """The connection string with our defaults under it, our settings and ``changes`` over it.

    It holds all that a session needs, on an executor too. Raises ConfigurationError.
    """
    try:
        given = conninfo_to_dict(dsn.get_secret_value())
    except psycopg.ProgrammingError:
        # libpq's message quotes the string, password and all
        raise ConfigurationError(
            "source.dsn is not a PostgreSQL connection string",
            hint="expected postgresql://user:password@host:port/database or host=... dbname=...",
        ) from None
    defaults = {"application_name": APPLICATION_NAME, "connect_timeout": _CONNECT_SECONDS, **_KEEPALIVE}
    options = startup_options(str(given.get("options") or os.environ.get("PGOPTIONS", "")))
    return make_conninfo(**{**defaults, **given, "options": options, **changes})


@contextmanager
def connected(dsn: SecretStr) -> Iterator[Connection]:
    """A session in autocommit mode with all settings pinned, closed at the end.

    PostgreSQL's errors inside the context come out as SourceError and its children.
    """
    connection = _connect(conninfo(dsn))
    try:
        with source_errors():
            connection.execute(PIN_STATEMENT)
            connection.execute("SELECT set_config('statement_timeout', %s, false)", [_CONTROL_STATEMENT_TIMEOUT])
            yield connection
    finally:
        connection.close()


@contextmanager
def source_errors(what: str = "PostgreSQL refused a statement") -> Iterator[None]:
    """Turn the driver's errors into ours; ``what`` begins the message."""
    try:
        yield
    except psycopg.Error as error:
        raise source_error(error, what) from None


def source_error(error: psycopg.Error, what: str) -> SourceError:
    """The typed error for one of psycopg's: its primary message, which never holds the connection string."""
    message = f"{what}: {error.diag.message_primary or error}"
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return PreconditionError(message, hint="`postgres-cdc doctor` lists what the role needs")
    if isinstance(error, psycopg.errors.ConfigurationLimitExceeded):
        return PreconditionError(message, hint="raise max_replication_slots or drop a slot that nobody reads")
    if isinstance(error, psycopg.errors.ObjectInUse):
        return SlotError(message, hint="another process reads this slot; stop it, or wait until it is done")
    if error.sqlstate is None or error.sqlstate.startswith(("08", "57P")):
        return SourceUnreachableError(message)
    return SourceError(message)


def _is_passing(error: BaseException) -> bool:
    return isinstance(error, psycopg.OperationalError) and any(sign in str(error) for sign in _STARTING_UP)


# only the connect itself is tried again, and only when the server says that it is busy: nothing has happened yet
@retry(
    retry=retry_if_exception(_is_passing),
    stop=stop_after_attempt(4),
    wait=wait_exponential_jitter(multiplier=0.2, max=3),
    reraise=True,
)
def _try_connect(text: str) -> Connection:
    return psycopg.connect(text, autocommit=True)


def _connect(text: str) -> Connection:
    try:
        return _try_connect(text)
    except psycopg.OperationalError as error:
        raise SourceUnreachableError(
            f"cannot connect to PostgreSQL: {connect_failure(str(error))}",
            hint="check host, port, user and password in source.dsn",
        ) from None


def connect_failure(message: str) -> str:
    """The line of libpq's message that says why; it names host and user, never the password."""
    lines = [line.strip().removeprefix("- ") for line in message.splitlines() if line.strip()]
    fatal = [line for line in lines if "FATAL:" in line]
    return (fatal or lines or ["no reason given"])[-1]
