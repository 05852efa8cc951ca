"""Errors and outcomes come in the order of the items, whichever thread is done first."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Barrier

import pyarrow as pa
import pytest

from spark_jobs.decode.threads import in_threads


@pytest.fixture(autouse=True)
def _two_threads() -> Iterator[None]:
    before = pa.cpu_count()
    pa.set_cpu_count(2)
    yield
    pa.set_cpu_count(before)


def test_outcomes_keep_the_order_of_the_items_though_they_are_made_at_once() -> None:
    both = Barrier(2, timeout=60)

    def work(item: int) -> int:
        both.wait()  # passes only when two threads are here
        return item * 10

    assert in_threads(work, [1, 2]) == [10, 20]


def test_the_first_item_that_fails_is_the_error() -> None:
    both = Barrier(2, timeout=60)

    def work(item: int) -> None:
        if item:
            both.wait()
            raise ValueError(f"item {item}")

    with pytest.raises(ValueError, match="item 1"):
        in_threads(work, [0, 1, 2, 0])
