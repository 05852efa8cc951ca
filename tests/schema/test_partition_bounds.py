"""Bounds as PostgreSQL prints them, and as both sides are asked for the rows within them."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, date, datetime
from itertools import product

import pyarrow as pa
import pytest

from spark_jobs.schema.partition_bounds import Bound, PartitionKey, Region, bound_of, outermost
from spark_jobs.schema.region_conditions import in_arrow, in_postgres, in_spark

COLUMNS = {
    "small": (1, 21),
    "id": (2, 23),
    "big": (3, 20),
    "day": (4, 1082),
    "at": (5, 1114),
    "instant": (6, 1184),
    "kind": (7, 25),
    "word": (8, 1043),
    "uuid": (9, 2950),
    "amount": (10, 1700),
}
NAMES = {number: name for name, (number, _) in COLUMNS.items()}


def bound(printed: str | None, *columns: str | None, strategy: str = "r") -> Bound | None:
    return bound_of(printed, PartitionKey(strategy, columns), COLUMNS)


def spark(*bounds: Bound | None) -> str:
    assert None not in bounds
    region = Region(tuple(each for each in bounds if each is not None))
    return in_spark([region], lambda column: NAMES[column.attnum])


def known(printed: str, *columns: str, strategy: str = "r") -> Bound:
    found = bound(printed, *columns, strategy=strategy)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("printed", "columns", "expected"),
    [
        ("FOR VALUES FROM (0) TO (10)", ("id",), "(id >= 0 AND id < 10)"),
        ("FOR VALUES FROM ('-5') TO ('5000000000')", ("big",), "(big >= -5 AND big < 5000000000)"),
        ("FOR VALUES FROM (MINVALUE) TO (MAXVALUE)", ("id",), "(true AND true)"),
        (
            "FOR VALUES FROM ('2024-01-01') TO ('2024-02-01')",
            ("day",),
            "(day >= DATE'2024-01-01' AND day < DATE'2024-02-01')",
        ),
        (
            "FOR VALUES FROM ('2024-01-01 00:00:00') TO ('2024-01-01 12:30:00.5')",
            ("at",),
            "(at >= TIMESTAMP_NTZ'2024-01-01 00:00:00.000000' AND at < TIMESTAMP_NTZ'2024-01-01 12:30:00.500000')",
        ),
        (
            "FOR VALUES FROM ('2024-01-01 00:00:00+00') TO (MAXVALUE)",
            ("instant",),
            "(instant >= TIMESTAMP_LTZ'2024-01-01 00:00:00.000000+00:00' AND true)",
        ),
        (
            "FOR VALUES FROM (1, 5, MINVALUE) TO (2, MAXVALUE, MAXVALUE)",
            ("id", "big", "small"),
            "((id > 1 OR (id = 1 AND big >= 5)) AND id <= 2)",
        ),
        ("FOR VALUES FROM (1, MAXVALUE) TO (2, MINVALUE)", ("id", "big"), "(id > 1 AND id < 2)"),
    ],
)
def test_ranges(printed: str, columns: tuple[str, ...], expected: str) -> None:
    assert spark(known(printed, *columns)) == expected


@pytest.mark.parametrize(
    "printed",
    [
        "FROM (1, 2) TO (2, 1)",
        "FROM (1, MINVALUE) TO (2, MAXVALUE)",
        "FROM (0, MAXVALUE) TO (2, MINVALUE)",
        "FROM (MINVALUE, MINVALUE) TO (1, 1)",
        "FROM (2, 2) TO (MAXVALUE, MAXVALUE)",
    ],
)
def test_rows_in_arrow_are_those_between_the_ends(printed: str) -> None:
    ends = known(f"FOR VALUES {printed}", "id", "big")
    assert ends.lower
    assert ends.upper
    rows = [*product(range(4), range(4))]
    inside = [row for row in rows if ends.lower.place <= tuple((1, each) for each in row) < ends.upper.place]
    assert 0 < len(inside) < len(rows)
    table = pa.table({"id": pa.array([row[0] for row in rows], pa.int32()), "big": [row[1] for row in rows]})
    found = table.filter(in_arrow([Region((ends,))], lambda column: NAMES[column.attnum]))
    assert [*zip(*found.to_pydict().values(), strict=True)] == inside


def test_rows_in_arrow_of_each_type() -> None:
    noon = datetime(2024, 1, 1, 12, 30, 0, 500_000)
    rows = pa.table(
        {
            "small": pa.array([1, 2], pa.int16()),
            "day": [date(2024, 1, 1), date(2024, 1, 2)],
            "at": [noon, datetime(2024, 1, 2)],
            "instant": [noon.replace(tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC)],
            "kind": ["it's", "other"],
        }
    )
    for column, end in (("day", "2024-01-02"), ("at", "2024-01-01 12:30:00.6"), ("instant", "2024-01-02 00:00:00+00")):
        regions = [Region((known(f"FOR VALUES FROM (MINVALUE) TO ('{end}')", column),))]
        assert rows.filter(in_arrow(regions, lambda each: NAMES[each.attnum])) == rows.slice(0, 1), column
    for column, value in (("small", "'2'"), ("kind", "'other'")):
        regions = [Region((known(f"FOR VALUES IN ({value}, '7')", column, strategy="l"),))]
        assert rows.filter(in_arrow(regions, lambda each: NAMES[each.attnum])) == rows.slice(1), column
    nothing = rows.filter(in_arrow([], lambda each: NAMES[each.attnum]))
    assert nothing.num_rows == 0


def test_lists() -> None:
    texts = known("FOR VALUES IN ('it''s', 'a, b', ')')", "kind", strategy="l")
    assert texts.listed == ("it's", "a, b", ")")
    assert spark(texts) == "(kind IN ('it\\'s', 'a, b', ')'))"
    region = Region((texts, known("FOR VALUES FROM ('2024-01-01 00:00:00+00') TO (MAXVALUE)", "instant")))
    assert in_postgres([region], lambda column: NAMES[column.attnum]) == (
        "(kind IN ('it''s'::pg_catalog.text, 'a, b'::pg_catalog.text, ')'::pg_catalog.text)"
        " AND instant >= '2024-01-01 00:00:00.000000+00'::pg_catalog.timestamptz AND true)"
    )
    assert known("FOR VALUES IN (1, '-2')", "small", strategy="l").listed == ("1", "-2")


@pytest.mark.parametrize(
    ("printed", "columns", "strategy"),
    [
        (None, ("id",), "r"),
        ("DEFAULT", ("id",), "r"),
        ("FOR VALUES WITH (modulus 2, remainder 0)", ("id",), "h"),
        ("FOR VALUES FROM (0) TO (10)", (None,), "r"),
        ("FOR VALUES FROM (0) TO (10)", ("dropped",), "r"),
        ("FOR VALUES FROM ('a') TO ('b')", ("kind",), "r"),
        ("FOR VALUES FROM ('0') TO ('1.5')", ("amount",), "r"),
        ("FOR VALUES FROM ('infinity') TO (MAXVALUE)", ("day",), "r"),
        ("FOR VALUES FROM ('0044-03-15 BC') TO ('2024-01-01')", ("day",), "r"),
        ("FOR VALUES FROM ('12024-01-01') TO (MAXVALUE)", ("day",), "r"),
        ("FOR VALUES FROM ('2024-01-01 00:00:00+02') TO (MAXVALUE)", ("instant",), "r"),
        ("FOR VALUES IN ('a', NULL)", ("kind",), "l"),
        ("FOR VALUES IN (E'a\\\\b')", ("kind",), "l"),
        ("FOR VALUES IN ('${x}')", ("kind",), "l"),
    ],
)
def test_what_the_sides_may_not_agree_on_has_no_bounds(
    printed: str | None, columns: tuple[str | None, ...], strategy: str
) -> None:
    assert bound(printed, *columns, strategy=strategy) is None


def test_apart_is_certain_only_for_the_same_columns() -> None:
    def ids(low: str, high: str) -> Bound:
        return known(f"FOR VALUES FROM ({low}) TO ({high})", "id")

    assert ids("0", "10").is_apart_from(ids("10", "MAXVALUE"))
    assert ids("9", "10").is_apart_from(ids("MINVALUE", "9"))
    assert ids("-10", "-9").is_apart_from(ids("-9", "9")), "by number, not by text"
    assert not ids("0", "10").is_apart_from(ids("9", "11"))
    assert not ids("0", "10").is_apart_from(known("FOR VALUES FROM (10) TO (20)", "big"))
    a, b = (known(f"FOR VALUES IN ('{kind}', 'c')", "kind", strategy="l") for kind in "ab")
    assert not a.is_apart_from(b)
    assert Region((ids("0", "10"),)).is_apart_from((ids("10", "20"), None))
    assert not Region((ids("0", "10"), a)).is_apart_from((None, b))


def test_regions_of_the_log_are_read_as_they_were_written() -> None:
    outer = Region((known("FOR VALUES FROM (1, MINVALUE) TO (2, 3)", "id", "big"),))
    inner = Region((*outer.bounds, known("FOR VALUES IN ('a')", "kind", strategy="l")))
    for region in (outer, inner):
        assert Region.of_json(json.loads(json.dumps(asdict(region)))) == region
    assert outermost([inner, outer, inner]) == (outer,)
    assert outermost([inner]) == (inner,)
