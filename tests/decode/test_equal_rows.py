"""Rows found by their hash are those that PostgreSQL prints alike, and no others, whatever the hashes are."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from spark_jobs.decode import equal_rows
from spark_jobs.decode.equal_rows import DistinctRows, EqualRows, comparable_rows, row_hashes

OTHER_NAN = struct.unpack("<d", struct.pack("<q", -1))[0]
INSTANT = datetime(2024, 3, 31, 0, 59, 59, 999999, UTC)
# a type, and values of which no two are equal
TYPES: dict[str, tuple[pa.DataType, list[object]]] = {
    "boolean": (pa.bool_(), [True, False]),
    "smallint": (pa.int16(), [0, -1, 32767]),
    "int": (pa.int32(), [0, -1, 2**31 - 1]),
    "bigint": (pa.int64(), [0, -1, 2**63 - 1]),
    "float": (pa.float32(), [0.0, -0.0, float("nan"), 0.5]),
    "double": (pa.float64(), [0.0, -0.0, float("nan"), 0.1]),
    "decimal": (pa.decimal128(38, 4), [Decimal(0), Decimal("0.0001"), Decimal(10**33), Decimal(-(10**33))]),
    "date": (pa.date32(), [date(1, 1, 1), date(9999, 12, 31)]),
    "timestamp_ntz": (pa.timestamp("us"), [INSTANT.replace(tzinfo=None), datetime(1, 1, 1)]),
    "timestamp": (pa.timestamp("us", tz="UTC"), [INSTANT, datetime(1, 1, 1, tzinfo=UTC)]),
    "string": (pa.string(), ["", "\0", "a", "a\0", "12345678", "123456789", "x" * 255, "x" * 300, "x" * 299 + "y"]),
    "binary": (pa.binary(), [b"", b"\0", b"\0" * 8, b"\0" * 9, bytes(range(256))]),
    "array<double>": (pa.list_(pa.float64()), [[], [None], [0.0], [-0.0], [None, 0.0], [0.0, None], [float("nan")]]),
    "array<string>": (pa.list_(pa.string()), [[], [None], [""], ["None"], ["a", "b"], ["a, b"]]),
}


def rows_of(kinds: list[str], rng: random.Random, count: int) -> pa.Table:
    """Nulls too, in chunks that begin in the middle of others."""
    columns = [pa.array([rng.choice([None, *TYPES[kind][1]]) for _ in range(count)], TYPES[kind][0]) for kind in kinds]
    rows = pa.table(columns, [f"v{place}" for place in range(len(kinds))])
    return pa.concat_tables([rows.slice(count // 3, count // 3), rows.slice(0, count // 3), rows.slice(count // 3)])


def printed(rows: pa.Table) -> list[str]:
    return [*map(repr, zip(*(column.to_pylist() for column in rows.columns), strict=True))]


@pytest.fixture(params=["as it is", "few bits", "one for all at first"])
def _hashes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashes of which many are the same although the rows are not, until other seeds are tried."""

    def poor(rows: pa.Table, seed: int = 0) -> np.ndarray:
        hashes = row_hashes(rows, seed)
        if request.param == "few bits":
            return hashes & ~np.uint64(0) << np.uint64(max(0, 60 - 4 * seed))
        return np.zeros_like(hashes) if seed == 0 else hashes

    if request.param != "as it is":
        monkeypatch.setattr(equal_rows, "row_hashes", poor)


@pytest.mark.usefixtures("_hashes")
@pytest.mark.parametrize("kinds", [*([kind] for kind in TYPES), ["double", "string"], [*TYPES]], ids=",".join)
def test_equal_rows_are_those_that_are_printed_alike(kinds: list[str]) -> None:
    rng = random.Random(7)  # noqa: S311
    rows = rows_of(kinds, rng, 90)
    texts, compared = printed(rows), comparable_rows(rows)
    equal = EqualRows.of(compared)
    assert [texts[equal.firsts[each]] for each in equal.sets] == texts
    assert [*map(texts.index, texts)] == equal.firsts[equal.sets].tolist(), "the first of each set"
    known = equal.firsts[::2]
    distinct = DistinctRows.of(compared.take(known))
    assert distinct is not None
    found, places = distinct.found(compared)
    assert [texts[row] for row in known[places]] == [texts[row] for row in found]
    assert {*found.tolist()} == {row for row, text in enumerate(texts) if text in {texts[each] for each in known}}
    nowhere = set(range(len(texts))) - {*found.tolist()}
    of_each = distinct.places_of(compared).to_pylist()
    assert {row for row, place in enumerate(of_each) if place is None} == nowhere
    assert (DistinctRows.of(compared) is None) is (len({*texts}) < len(texts))


def test_all_nan_are_one() -> None:
    rows = comparable_rows(pa.table({"v0": pa.array([float("nan"), OTHER_NAN, -float("nan")])}))
    assert EqualRows.of(rows).firsts.tolist() == [0]


def test_what_lies_under_a_null_does_not_count() -> None:
    numbers, texts = pa.array([1, 2, 3]).buffers()[1], pa.array(["a", "b", "c"]).buffers()
    nulls = pa.py_buffer(bytes([0b001]))
    hidden: Callable[[pa.DataType, list[pa.Buffer]], pa.Array]
    hidden = lambda kind, buffers: pa.Array.from_buffers(kind, 3, [nulls, *buffers])  # noqa: E731
    rows = pa.table([hidden(pa.int64(), [numbers]), hidden(pa.string(), texts[1:])], ["v0", "v1"])
    assert len(EqualRows.of(rows).firsts) == 2


def test_no_rows() -> None:
    rows = pa.table({"v0": pa.array([], pa.string()), "v1": pa.array([], pa.int64())})
    distinct = DistinctRows.of(rows)
    assert distinct is not None
    assert distinct.places_of(rows).to_pylist() == []
    some = pa.table({"v0": ["a", None], "v1": [1, None]})
    assert distinct.places_of(some).to_pylist() == [None, None]
    full = DistinctRows.of(some)
    assert full is not None
    assert full.places_of(rows).to_pylist() == []


def test_a_hash_does_not_depend_on_where_the_row_lies() -> None:
    texts = [None if row % 7 == 0 else "x" * (row % 41) + str(row) for row in range(40_000)]
    rows = pa.table({"v0": pa.array(range(40_000), pa.int64()), "v1": pa.array(texts, pa.string())})
    cut = pa.concat_tables([rows.slice(0, 9), rows.slice(9, 20_000), rows.slice(20_009)])
    alone = np.concatenate([row_hashes(rows.slice(first, 1_000)) for first in range(0, 40_000, 1_000)])
    assert (row_hashes(rows) == alone).all()
    assert (row_hashes(cut) == alone).all()
