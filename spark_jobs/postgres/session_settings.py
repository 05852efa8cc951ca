"""The settings that each of our sessions pins, so that it works, and text output depends only on the value.

A database or a role may have other settings (``ALTER DATABASE ... SET``, ``ALTER ROLE ... SET``). So ours are pinned
twice: in the startup packet, before anything runs, and with a statement, for what a startup packet cannot do.
"""

from __future__ import annotations

# every role may set these, and every version since 14 knows them
# https://www.postgresql.org/docs/current/runtime-config-client.html
PINNED_SETTINGS: tuple[tuple[str, str], ...] = (
    ("TimeZone", "UTC"),
    ("DateStyle", "ISO, MDY"),
    ("IntervalStyle", "postgres"),
    ("extra_float_digits", "3"),
    ("bytea_output", "hex"),
    ("xmlbinary", "base64"),
    ("lc_monetary", "C"),
    ("standard_conforming_strings", "on"),
    ("array_nulls", "on"),
    ("quote_all_identifiers", "off"),
    ("client_encoding", "UTF8"),
    ("client_min_messages", "warning"),  # libpq prints notices on stderr
    ("search_path", ""),
    ("jit", "off"),  # compiling a catalogue query takes seconds, running it milliseconds
    ("row_security", "off"),  # raises an error instead of silently hiding rows
    ("default_transaction_isolation", "read committed"),
    ("default_transaction_read_only", "off"),
    ("default_transaction_deferrable", "off"),
    ("exit_on_error", "off"),
    ("lock_timeout", "60s"),
    ("statement_timeout", "0"),  # reading a window may take any time
    ("idle_in_transaction_session_timeout", "0"),
    ("idle_session_timeout", "0"),  # a session that holds a lock waits for Spark
)
# new in PostgreSQL 17, so not in the startup packet: servers refuse one with an unknown setting
_TRANSACTION_TIMEOUT = """
(SELECT pg_catalog.set_config(name, '0', false) FROM pg_catalog.pg_settings WHERE name = 'transaction_timeout')
""".strip()
APPLICATION_NAME = "postgres-cdc"


def startup_options(given: str = "") -> str:
    """The ``options`` of a connection string: those ``given`` by the user, then ours, which win.

    https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-CONNECT-OPTIONS
    """
    pinned = (f"-c {name}={_escaped(value)}" for name, value in PINNED_SETTINGS)
    return " ".join(filter(None, [given.strip(), *pinned]))


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace(" ", "\\ ")


def _pin_statement() -> str:
    """One SELECT, because that works with every driver and protocol.

    It pins settings that not every server knows, and all others again: environment variables like PGTZ override the
    startup options, and a pooler may drop them.
    """
    calls = [f"pg_catalog.set_config('{name}', '{value}', false)" for name, value in PINNED_SETTINGS]
    return "SELECT " + ", ".join([*calls, _TRANSACTION_TIMEOUT])


PIN_STATEMENT = _pin_statement()
# The encoding in which rows and changes are read. In an SQL_ASCII database a text may be of any encoding, and in any
# but its own the server refuses it, with all changes after it. Read as it is, it stops its table alone.
ENCODING_OF_ROWS = """
CASE pg_catalog.current_setting('server_encoding') WHEN 'SQL_ASCII' THEN 'SQL_ASCII' ELSE 'UTF8' END
""".strip()
