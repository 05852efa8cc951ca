"""What every session that reads values pins, so that text output depends on nothing but the value.

Output plugins and output functions obey these settings of the session; a database or role may set others.
"""

from __future__ import annotations

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
    ("quote_all_identifiers", "off"),
    ("client_encoding", "UTF8"),
    ("search_path", ""),
    ("jit", "off"),  # compiling a query of the catalogue takes seconds, where it runs for milliseconds
    ("row_security", "off"),  # an error instead of a table silently read in part
    ("lock_timeout", "60s"),
    ("statement_timeout", "0"),  # reading a window takes as long as it takes
    ("idle_in_transaction_session_timeout", "0"),
    ("idle_session_timeout", "0"),  # a session that holds a lock waits for Spark
)
APPLICATION_NAME = "postgres-cdc"
# one SELECT: a statement of this form works with every driver and protocol
PIN_STATEMENT = "SELECT " + ", ".join(
    f"pg_catalog.set_config('{name}', '{value}', false)" for name, value in PINNED_SETTINGS
)
