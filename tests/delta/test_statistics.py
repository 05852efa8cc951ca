"""Statistics of data files: no reader that trusts them skips a file with a row that it wants."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.delta.statistics import Statistics, is_wide

TIMESTAMP = pa.timestamp("us", tz="UTC")


def of(*groups: pa.Array) -> dict[str, Any]:
    statistics = Statistics(("c",))
    for values in groups:
        statistics.add(pa.table({"c": values}))
    told: dict[str, Any] = json.loads(statistics.to_json())
    return told


@pytest.mark.parametrize(
    ("values", "least", "greatest"),
    [
        (pa.array([3, None, -1]), -1, 3),
        (pa.array([date(2024, 2, 29), date(1, 1, 1)]), "0001-01-01", "2024-02-29"),
        (pa.array([datetime(1969, 12, 31, 23, 59, 59, 999999)]), "1969-12-31T23:59:59.999", "1969-12-31T23:59:59.999"),
        (
            pa.array([datetime(2024, 1, 1, 0, 0, 0, 123456, UTC)], TIMESTAMP),
            "2024-01-01T00:00:00.123Z",
            "2024-01-01T00:00:00.123Z",
        ),
        (pa.array(["b", "a'\"\n"]), "a'\"\n", "b"),
    ],
)
def test_least_and_greatest(values: pa.Array, least: object, greatest: object) -> None:
    told = of(values)
    assert (told["minValues"]["c"], told["maxValues"]["c"]) == (least, greatest)
    assert (told["numRecords"], told["nullCount"]["c"]) == (len(values), values.null_count)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1.5, float("nan")]),
        pa.array([Decimal("1.10")], pa.decimal128(10, 2)),
        pa.array([True]),
        pa.array([b"x"]),
        pa.array([None], pa.int32()),
    ],
)
def test_values_without_an_exact_form_have_none(values: pa.Array) -> None:
    told = of(values)
    assert told["minValues"] == told["maxValues"] == {}
    assert told["nullCount"]["c"] == values.null_count


def test_groups_count_together() -> None:
    told = of(pa.array([5, 6]), pa.array([None, 2]))
    assert told == {"numRecords": 4, "minValues": {"c": 2}, "maxValues": {"c": 6}, "nullCount": {"c": 1}}


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=80), min_size=1, max_size=5))
def test_every_string_is_between_the_two(values: list[str]) -> None:
    """As bytes, as Spark compares them."""
    told = of(pa.array(values))
    least = told["minValues"]["c"].encode()
    greatest = told["maxValues"].get("c")
    for value in values:
        assert least <= value.encode()
        assert greatest is None or value.encode() <= greatest.encode()
    assert greatest is not None or any("\U0010ffff" in value for value in values)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), min_size=1, max_size=5))
def test_of_wide_values_the_beginnings_are_enough(values: list[str]) -> None:
    end = "z" * 5000
    wide = pa.chunked_array([pa.array([value + end for value in values])])
    assert is_wide(wide)
    beginnings = of(pa.array([(value + end)[:60] for value in values]))
    assert of(wide) == beginnings
