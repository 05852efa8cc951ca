"""What every session of ours pins, so that it works, and its text output depends on nothing but the value.

A database or a role may set others (``ALTER DATABASE ... SET``, ``ALTER ROLE ... SET``). So they are pinned twice: in
the startup packet, before anything runs; and by a statement, for what a startup packet cannot do.
"""

from __future__ import annotations

# each may be set by every role, and every version from 14 on knows it
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
    ("jit", "off"),  # compiling a query of the catalogue takes seconds, where it runs for milliseconds
    ("row_security", "off"),  # an error instead of a table silently read in part
    ("default_transaction_isolation", "read committed"),
    ("default_transaction_read_only", "off"),
    ("default_transaction_deferrable", "off"),
    ("exit_on_error", "off"),
    ("lock_timeout", "60s"),
    ("statement_timeout", "0"),  # reading a window takes as long as it takes
    ("idle_in_transaction_session_timeout", "0"),
    ("idle_session_timeout", "0"),  # a session that holds a lock waits for Spark
)
# a startup packet with a setting that the server does not know is refused
_TRANSACTION_TIMEOUT = """
(SELECT pg_catalog.set_config(name, '0', false) FROM pg_catalog.pg_settings WHERE name = 'transaction_timeout')
""".strip()  # 17
APPLICATION_NAME = "postgres-cdc"


def startup_options(given: str = "") -> str:
    """The ``options`` of a connection string: what the user has ``given`` there, and ours, which win.

    https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-CONNECT-OPTIONS
    """
    pinned = (f"-c {name}={_escaped(value)}" for name, value in PINNED_SETTINGS)
    return " ".join(filter(None, [given.strip(), *pinned]))


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace(" ", "\\ ")


def _pin_statement() -> str:
    """One SELECT: a statement of this form works with every driver and protocol.

    It pins what is newer than the oldest server, and again what came after the options: PGTZ and its like in the
    environment do, and a pooler may drop the options.
    """
    calls = [f"pg_catalog.set_config('{name}', '{value}', false)" for name, value in PINNED_SETTINGS]
    return "SELECT " + ", ".join([*calls, _TRANSACTION_TIMEOUT])


PIN_STATEMENT = _pin_statement()
