"""Work on columns or pieces of a batch, on all cores: NumPy's and Arrow's kernels let go of the interpreter's lock."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pyarrow as pa

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


def in_threads(work: Callable[[Item], Outcome], items: Iterable[Item]) -> list[Outcome]:
    """The outcomes in the order of ``items``. Raises what the first item that fails raises, by that order.

    As many threads as Arrow uses: one in a Spark task, which shares its machine with others.
    """
    with ThreadPoolExecutor(pa.cpu_count(), thread_name_prefix="decode") as pool:
        return list(pool.map(work, items))
