"""Integers looked up by a table are those that are found by their hash, wherever they lie."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from spark_jobs.decode.close_integers import CloseIntegers, by_key
from spark_jobs.decode.equal_rows import DistinctRows

BITS = {pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}
# where the keys lie: at both ends of the type, and around 0
ENDS = ("least", "middle", "greatest")


@pytest.mark.parametrize("kind", BITS, ids=str)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("apart", [1, 3, 50])
def test_both_find_the_same(kind: pa.DataType, end: str, apart: int) -> None:
    rng = random.Random(apart)  # noqa: S311
    bound = 1 << (BITS[kind] - 1)
    first = {"least": -bound, "middle": -200 * apart, "greatest": bound - 400 * apart}[end]
    numbers = rng.sample(range(first, first + 400 * apart), 200)
    others = [None, -bound, -1, 0, bound - 1, *numbers[::2], *(rng.randrange(-bound, bound) for _ in range(50))]
    keys, sought = (pa.table({"v0": pa.array(values, kind)}) for values in (numbers, others))
    found, hashed = by_key(keys), DistinctRows.of(keys)
    assert isinstance(found, CloseIntegers) is (apart < 4)
    assert found is not None
    assert hashed is not None
    assert found.places_of(sought).to_pylist() == hashed.places_of(sought).to_pylist()
    two_chunks = pa.concat_tables([sought.slice(0, 3), sought.slice(3)])
    assert found.places_of(two_chunks).to_pylist() == hashed.places_of(sought).to_pylist()


def test_a_key_twice_is_told() -> None:
    assert by_key(pa.table({"v0": [1, 2, 1]})) is None
    assert by_key(pa.table({"v0": [1, 10**12, 1]})) is None


def test_keys_of_other_kinds_are_hashed() -> None:
    for keys in ({"v0": [1, None]}, {"v0": ["a"]}, {"v0": [1], "v1": [1]}, {"v0": pa.array([], pa.int64())}):
        assert isinstance(by_key(pa.table(keys)), DistinctRows)


def test_ranks_are_those_of_a_sort() -> None:
    numbers = np.array([5, -3, 5, 9, -3, 0])
    close = CloseIntegers.of(numbers)
    assert close is not None
    distinct, places = close.ranked()
    expected, inverse = np.unique(numbers, return_inverse=True)
    assert distinct.tolist() == expected.tolist()
    assert places[numbers - close.least].tolist() == inverse.tolist()
