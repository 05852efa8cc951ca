"""Which rows another tool's table has: their hashes, in memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from spark_jobs.snapshot.adopted.row_hash import HASH


@dataclass(frozen=True)
class CopiedRows:
    """The hashes of all rows of a ``CopiedTable``, ascending by the first of their two numbers. Rows that have this one
    in common are left out. 16 bytes for each row."""

    first: np.ndarray
    second: np.ndarray

    @classmethod
    def of(cls, hashes: Iterable[np.ndarray]) -> CopiedRows:
        """``hashes``: those of ``row_hashes``."""
        pairs = np.concatenate([np.empty(0, HASH), *hashes])
        first = pairs["first"]
        order = np.argsort(first)
        like_next = np.append(first[order[1:]] == first[order[:-1]], False)[: len(order)]
        alone = order[~(like_next | np.roll(like_next, 1))]
        return cls(first[alone], pairs["second"][alone])

    def places(self, hashes: np.ndarray) -> np.ndarray:
        """The number of the row that is equal to each, -1 if there is none."""
        places = self.places_by_first(hashes["first"])
        if not len(self.second):
            return places
        return np.where(self.second[places] == hashes["second"], places, -1)

    def places_by_first(self, numbers: np.ndarray) -> np.ndarray:
        """The number of the row whose hash has each of ``numbers`` as its first one, -1 if there is none."""
        if not len(self.first):
            return np.full(len(numbers), -1)
        places = np.minimum(np.searchsorted(self.first, numbers), len(self.first) - 1)
        return np.where(self.first[places] == numbers, places, -1)
