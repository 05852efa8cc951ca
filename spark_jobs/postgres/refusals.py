"""What PostgreSQL's refusals mean, by SQLSTATE, for whichever driver brings them. Runs on executors: no psycopg here.

https://www.postgresql.org/docs/current/errcodes-appendix.html
"""

from __future__ import annotations

from spark_jobs.errors import ConnectionLostError

# class 08: connection exceptions; 57P01 to 57P05: a backend that was ended, by an administrator, a crash, a timeout
_LOST_STATES = ("08", "57P")
# ended by a limit of its own: 57P05 idle_session_timeout, 25P03 in a transaction, 25P04 transaction_timeout
_LIMIT_STATES = ("25P03", "25P04")
# libpq's own words, where there is no server left to send an SQLSTATE
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


def is_lost(sqlstate: str | None, said: str) -> bool:
    """Whether the session has ended with this error."""
    if sqlstate:
        return sqlstate.startswith(_LOST_STATES) or sqlstate in _LIMIT_STATES
    return any(words in said for words in _LOST_WORDS)


def lost_connection(what: str, said: str) -> ConnectionLostError:
    """``what`` was at work; ``said``: by server or driver, often with a second line of guesses."""
    reason = (said.strip().splitlines() or ["no reason given"])[0].rstrip(":. ")
    return ConnectionLostError(
        f"{what}: the connection to PostgreSQL was lost ({reason})", hint="run it again when the server answers"
    )


def certificate_hint(said: str) -> str:
    """Of a connection that failed for TLS; empty for others."""
    if "SSL" not in said and "certificate" not in said:
        return ""
    return "check sslmode, sslrootcert and the host's name in source.dsn; executors need its files at the same paths"


def refusal_hint(sqlstate: str | None, said: str) -> str:
    """Which limit struck, and whose it is; empty for what says enough itself. A stream's errors have no SQLSTATE."""
    if "temp_file_limit" in said:
        return "the server's own temp_file_limit struck: its administrator can raise it for this role"
    if sqlstate == "53400":
        return "raise max_replication_slots or drop a slot that nobody reads"
    if sqlstate == "53100" or "No space left on device" in said:
        return "the server's disk is full"
    if sqlstate == "55P03" or "lock timeout" in said:
        return "our own lock_timeout struck: another session holds a lock, see pg_locks"
    if "statement timeout" in said:
        return "our own statement_timeout struck: look for what it waits for in pg_stat_activity"
    if "different column lists" in said:
        return (
            "give the table the same list in each publication; what was changed before cannot be decoded: start over"
            " with a new slot and a new lake path"
        )
    if "user request" in said:
        return "it was cancelled on the server: run it again"
    return ""
