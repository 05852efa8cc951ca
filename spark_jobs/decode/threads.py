"""Works on columns or pieces of a batch in threads, on all cores: NumPy's and Arrow's kernels release the GIL."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pyarrow as pa

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")
_MANY_ROWS = 5_000


def in_threads(work: Callable[[Item], Outcome], items: Iterable[Item], rows: int = _MANY_ROWS) -> list[Outcome]:
    """The outcomes, in the order of ``items``. Raises the error of the first item, in that order, that fails. ``rows``:
    of each item; of few, or with one item, no thread is started, which would cost more than it saves.

    Uses as many threads as Arrow: one in a Spark task, which shares its machine with other tasks.
    """
    listed = [*items]
    if rows < _MANY_ROWS or len(listed) < 2:
        return [*map(work, listed)]
    with ThreadPoolExecutor(pa.cpu_count(), thread_name_prefix="decode") as pool:
        return list(pool.map(work, listed))
