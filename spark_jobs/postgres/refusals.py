"""What PostgreSQL's errors mean, by SQLSTATE, for any driver. Also runs on executors, so no psycopg here.

https://www.postgresql.org/docs/current/errcodes-appendix.html
"""

from __future__ import annotations

from spark_jobs.errors import ConnectionLostError

# class 08: connection exceptions; 57P01 to 57P05: the session was ended by an administrator, a crash, or (57P05)
# idle_session_timeout
_LOST_STATES = ("08", "57P")
# 25P03: idle_in_transaction_session_timeout; 25P04: transaction_timeout
_LIMIT_STATES = ("25P03", "25P04")
# libpq's own messages, when no server is left to send an SQLSTATE
_LOST_WORDS = (
    "server closed the connection",
    "connection is lost",
    "connection is closed",
    "no connection to the server",
    "could not receive data from server",
    "could not send data to server",
    "SSL connection has been closed",
    "SSL SYSCALL error",
)
# of a server that is about to answer, or to stop
_NOT_NOW_WORDS = (
    "shutting down",
    "starting up",
    "not yet accepting connections",
    "in recovery mode",
    "administrator command",
)


def is_lost(sqlstate: str | None, message: str) -> bool:
    """Whether this error has ended the session. ``message``: the error's."""
    if sqlstate:
        return sqlstate.startswith(_LOST_STATES) or sqlstate in _LIMIT_STATES
    return any(words in message for words in _LOST_WORDS)


def lost_connection(what: str, message: str) -> ConnectionLostError:
    """``what`` failed; ``message``: that of server or driver, whose further lines are often guesses."""
    reason = (message.strip().splitlines() or ["no reason given"])[0].rstrip(":. ")
    return ConnectionLostError(
        f"{what}: the connection to PostgreSQL was lost ({reason})", hint="run it again when the server answers"
    )


def connect_hint(message: str) -> str:
    """The hint for a connection that could not be opened."""
    if "SSL" in message or "certificate" in message:
        return (
            "check sslmode, sslrootcert and the host's name in source.dsn; executors need its files at the same paths"
        )
    if "startup parameter" in message or "RDS Proxy" in message:
        return "a connection pooler refuses what every session needs: name the server itself in source.dsn"
    if any(words in message for words in _NOT_NOW_WORDS):
        return "run it again when the server answers"
    if "server closed the connection" in message:  # it has crashed, or it is no PostgreSQL
        return "run it again when the server answers; if it never does, check host and port in source.dsn"
    return "check host, port, user and password in source.dsn, and that pg_hba.conf lets the role in"


def refusal_hint(sqlstate: str | None, message: str) -> str:
    """The hint that names the limit that was exceeded, and whose it is; empty for errors that need no hint.

    Errors while a result is streamed have no SQLSTATE, so the message is searched too.
    """
    if "temp_file_limit" in message:
        return "the server's own temp_file_limit was exceeded: its administrator can raise it for this role"
    if sqlstate == "53400":
        return "drop a slot that nobody reads, or raise max_replication_slots"
    if sqlstate == "53100" or "No space left on device" in message:
        return "the server's disk is full"
    if sqlstate == "55P03" or "lock timeout" in message:
        return "our own lock_timeout expired: another session holds a lock, see pg_locks"
    if "statement timeout" in message:
        return "our own statement_timeout expired: look for what it waits for in pg_stat_activity"
    if "different column lists" in message:
        return (
            "give the table the same list in each publication; what was changed before cannot be decoded: start over"
            " with a new slot and a new lake path"
        )
    if sqlstate == "22021":
        return "a name or an enum's label of this SQL_ASCII database is not UTF-8: rename it"
    if "user request" in message:
        return "it was cancelled on the server: run it again"
    return ""
