"""Types of random columns, and SQL expressions of random values for each."""

from __future__ import annotations

import random
from collections.abc import Callable

# what ALTER TYPE is tried with: some rewrite the table, some only the catalogue, some fail for want of a cast
# without a row written again
WIDENED = {"numeric(12,3)": "numeric(14,3)", "numeric(20,4)": "numeric(24,4)"}
RETYPES = ("text", "varchar(40)", "bigint", "numeric(20,4)", "numeric(24,4)", "double precision", "jsonb")

_Chance = random.Random

_INTEGERS = ("0", "-1", "7", "42", "-32768", "32767")
_TEXTS = ("''", "'a'", "'b'", "' a '", "E'line\\n\\tnext'", "'Ünïcödé 🐘'", "'NULL'", "'{}'", "'1'", "E'\\\\\"'")


def _of(*expressions: str) -> Callable[[_Chance], str]:
    return lambda chance: chance.choice(expressions)


def _large(chance: _Chance) -> str:
    """Beyond what stays in the row: unchanged, it is not sent again."""
    seed, repeats = chance.randrange(100), chance.choice((3, 90, 400))
    return f"(SELECT string_agg(md5(n || '{seed}'), '') FROM generate_series(1, {repeats}) n)"


VALUES: dict[str, Callable[[_Chance], str]] = {
    "smallint": _of(*_INTEGERS),
    "integer": _of(*_INTEGERS, "2147483647", "-2147483648"),
    "bigint": _of(*_INTEGERS, "9223372036854775807", "-9223372036854775808"),
    "text": lambda chance: _large(chance) if chance.random() < 0.3 else chance.choice(_TEXTS),
    "character varying(40)": _of(*_TEXTS),
    "character(5)": _of("''", "'a'", "'abcde'", "' b'"),
    "numeric(12,3)": _of("0", "-0.001", "1.5", "999999999.999", "-123456.78"),
    "numeric(14,3)": _of("0", "-0.001", "1.5", "99999999999.999"),
    "numeric(20,4)": _of("0", "1.5", "-99999999999999.9999"),
    "numeric(24,4)": _of("0", "1.5", "-99999999999999999.9999"),
    "boolean": _of("true", "false"),
    "double precision": _of("0", "-0.0::float8", "'NaN'", "'Infinity'", "1e-300", "0.1"),
    "real": _of("0", "'-0'", "'NaN'", "1.5", "3.4e38"),
    "date": _of("'2024-02-29'", "'0001-01-01'", "'9999-12-31'", "'1969-12-31'"),
    "timestamp without time zone": _of("'2024-02-29 23:59:59.999999'", "'0001-01-01'", "'1582-10-10 12:00'"),
    "timestamp with time zone": _of("'2024-02-29 23:59:59.999999+05:30'", "'1969-12-31 23:59:59Z'"),
    "time without time zone": _of("'24:00'", "'00:00:00.000001'"),
    "interval": _of("'1 mon -2 days 00:00:01'", "'-1 year'", "'0'"),
    "bytea": _of("'\\x'", "'\\x00ff'", "decode(repeat('00ff', 2000), 'hex')"),
    "uuid": _of("'00000000-0000-0000-0000-000000000000'", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"),
    "jsonb": _of("'{}'", "'null'", '\'{"a": [1, "ü", null]}\'', "to_jsonb(repeat('x', 9000))"),
    "json": _of("'{ }'", '\'{"b": 1,  "a": 1}\''),
    "integer[]": _of("'{}'", "'{1,NULL,-3}'", "'[0:1]={1,2}'", "'{{1,2},{3,4}}'"),
    "text[]": _of("'{}'", "ARRAY['a,b', NULL, 'NULL', '', E'\\\\\"']"),
    "inet": _of("'10.0.0.1/8'", "'::1'"),
    "oid": _of("0", "4294967295"),
    "mood": _of("'good'", "'so so'", "'it''s bad'"),
    "int4range": _of("'empty'", "'[1,5)'", "'(,3]'"),
}


def value(chance: _Chance, typname: str) -> str:
    """An expression of the type, as ``format_type`` prints it; NULL now and then."""
    return "NULL" if chance.random() < 0.15 else set_value(chance, typname)


def set_value(chance: _Chance, typname: str) -> str:
    """Never NULL."""
    return f"({VALUES[typname](chance)})::{typname}"
