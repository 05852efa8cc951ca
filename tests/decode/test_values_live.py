"""PostgreSQL is the oracle: its own text output, cast here, equals what it says of the same value in another way."""

from __future__ import annotations

import datetime as dt
import math
import struct
from decimal import Decimal

import pyarrow as pa
import pytest

from spark_jobs.decode.values import cast_text
from spark_jobs.schema.lake_types import LakeType, lake_type
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres

_SETTINGS = (
    "SET TimeZone = 'UTC'; SET DateStyle = 'ISO'; SET extra_float_digits = 3; SET bytea_output = hex;"
    " SET client_encoding = 'UTF8'"
)
_EPOCH = dt.datetime(1970, 1, 1)


def as_postgres_writes(database: Database, expression: str, check: str, source: str) -> list[tuple[str | None, object]]:
    """(text output, the same value told by ``check``) for every row of ``source``."""
    with database.connect() as connection:
        connection.execute(_SETTINGS)
        found = connection.execute(f"SELECT ({expression})::text, {check} FROM {source}").fetchall()
    return [(row[0], row[1]) for row in found]  # type: ignore[misc]


def cast(rows: list[tuple[str | None, object]], to: LakeType, policy: str = "error") -> list[object]:
    texts = pa.array([text for text, _ in rows], pa.string())
    return list(cast_text(texts, to, name="c", table="s.t", on_unrepresentable=policy).values.to_pylist())  # type: ignore[arg-type]


def test_integers_and_oid(every_database: Database) -> None:
    for name, oid, values in (
        ("int2", 21, "-32768, 0, 32767, NULL"),
        ("int4", 23, "-2147483648, 2147483647"),
        ("int8", 20, "-9223372036854775808, 9223372036854775807, NULL"),
        ("oid", 26, "0, 4294967295"),
    ):
        source = f"unnest(ARRAY[{values}]::{name}[]) AS v"
        rows = as_postgres_writes(every_database, "v", "v::numeric" if name != "oid" else "v::int8", source)
        assert cast(rows, lake_type(oid, -1)) == [value for _, value in rows]


def test_floats_to_the_last_bit(every_database: Database) -> None:
    special = "'NaN', 'Infinity', '-Infinity', '-0', '0.1', NULL"
    for name, oid, form, edge in (
        ("float8", 701, ">d", "'5e-324', '1.7976931348623157e308', '2.2250738585072014e-308'"),
        ("float4", 700, ">f", "'1e-45', '3.4028235e38', '1.17549435e-38'"),
    ):
        source = f"(SELECT unnest(ARRAY[{special}, {edge}]::{name}[]) AS v UNION ALL"
        source += f" SELECT ((random() - 0.5) * 10 ^ (random() * 60 - 30))::{name} FROM generate_series(1, 5000)) AS s"
        rows = as_postgres_writes(every_database, "v", f"{name}send(v)", source)
        for value, (_, bits) in zip(cast(rows, lake_type(oid, -1)), rows, strict=True):
            if isinstance(value, float) and math.isnan(value):
                assert math.isnan(struct.unpack(form, bits)[0])  # type: ignore[arg-type]
            else:
                assert (None if value is None else struct.pack(form, value)) == bits


def test_numerics_digit_by_digit(every_database: Database) -> None:
    nines = "9" * 38
    cases: list[tuple[int, int, str]] = [
        (38, 0, f"{nines}, -{nines}, 0"),
        (38, 38, f"0.{nines}, -0.{nines}, 0, 0.1"),
        (10, 2, "0, 12345678.9, -99999999.99, 0.005"),
        (5, 5, "0.12345, -0.00001"),
    ]
    for precision, scale, values in cases:
        source = f"unnest(ARRAY[{values}, NULL]::numeric({precision},{scale})[]) AS v"
        rows = as_postgres_writes(every_database, "v", "v", source)
        typmod = (precision << 16 | scale) + 4
        assert cast(rows, lake_type(1700, typmod)) == [value for _, value in rows]
        assert any(isinstance(value, Decimal) for _, value in rows)
    rows = as_postgres_writes(every_database, "v::numeric(10,2)", "1", "unnest(ARRAY['NaN', '1']::numeric[]) AS v")
    assert cast(rows, lake_type(1700, (10 << 16 | 2) + 4), "null") == [None, Decimal("1.00")]


def test_days_and_microseconds(every_database: Database) -> None:
    days = "(SELECT DATE '0001-01-01' + n * 997 AS v FROM generate_series(0, 3662) AS n"
    days += " UNION ALL SELECT '9999-12-31') AS s"
    rows = as_postgres_writes(every_database, "v", "v - DATE '1970-01-01'", days)
    assert cast(rows, lake_type(1082, -1)) == [_EPOCH.date() + dt.timedelta(days=day) for _, day in rows]  # type: ignore[arg-type]

    for name, oid, check in (
        ("timestamp", 1114, "(extract(epoch FROM v) * 1000000)::int8"),
        ("timestamptz", 1184, "(extract(epoch FROM v) * 1000000)::int8"),
    ):
        source = f"(SELECT '0001-01-01'::{name} + random() * INTERVAL '3652058 days' AS v FROM generate_series(1, 5000)"
        source += f" UNION ALL SELECT unnest(ARRAY['0001-01-01', '9999-12-31 23:59:59.999999', NULL]::{name}[])) AS s"
        rows = as_postgres_writes(every_database, "v", check, source)
        texts = pa.array([text for text, _ in rows], pa.string())
        got = cast_text(texts, lake_type(oid, -1), name="c", table="s.t").values.cast(pa.int64()).to_pylist()
        assert got == [micros for _, micros in rows]


def test_what_no_lake_type_holds_is_recognised(every_database: Database) -> None:
    times = "'infinity', '-infinity', '10000-01-01', '0001-12-31 BC', '4713-01-01 12:00:01.5 BC', '294276-12-31'"
    times += ", '2024-01-01'"
    for name, oid in (("date", 1082), ("timestamp", 1114), ("timestamptz", 1184)):
        rows = as_postgres_writes(every_database, "v", "1", f"unnest(ARRAY[{times}]::{name}[]) AS v")
        got = cast(rows, lake_type(oid, -1), "null")
        assert got[:-1] == [None] * 6
        assert str(got[-1]).startswith("2024-01-01")


def test_a_time_zone_with_seconds(every_database: Database) -> None:
    """What a session that forgot TimeZone=UTC would write: local mean time, offset in seconds."""
    with every_database.connect() as connection:
        connection.execute(_SETTINGS)
        connection.execute("SET TimeZone = 'Europe/Amsterdam'")
        found = connection.execute(
            "SELECT v::text, (extract(epoch FROM v) * 1000000)::int8 FROM"
            " (SELECT '1800-01-01'::timestamptz + n * INTERVAL '90 days 01:02:03.4' AS v"
            " FROM generate_series(1, 1500) AS n) AS s"
        ).fetchall()
    assert any(str(row[0]).count(":") == 4 for row in found)
    texts = pa.array([row[0] for row in found], pa.string())
    got = cast_text(texts, lake_type(1184, -1), name="c", table="s.t").values.cast(pa.int64()).to_pylist()
    assert got == [row[1] for row in found]


def test_bytea_bool_and_text(every_database: Database) -> None:
    source = r"unnest(ARRAY['', '\x00ff', decode(repeat('5c', 99), 'hex'), NULL]::bytea[]) AS v"
    rows = as_postgres_writes(every_database, "v", "v", source)
    assert cast(rows, lake_type(17, -1)) == [value for _, value in rows]
    texts = r"unnest(ARRAY['', E'a\nb\\', 'null', 'ünï', NULL]::text[]) AS v"
    rows = as_postgres_writes(every_database, "v", "v", texts)
    assert cast(rows, lake_type(25, -1)) == [value for _, value in rows]
    # boolout, as COPY and pgoutput write it; the cast to text is another function
    copy_out = "COPY (SELECT unnest(ARRAY[true, false, NULL])) TO STDOUT"
    with every_database.connect() as connection, connection.cursor() as cursor, cursor.copy(copy_out) as copy:
        lines = b"".join(bytes(part) for part in copy).decode().split()
    booleans = [(None if line == "\\N" else line, None) for line in lines]
    assert cast(list(booleans), lake_type(16, -1)) == [True, False, None]
