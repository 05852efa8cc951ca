"""Rows looked up by their key. Integers that are close together need neither a hash nor a sort: a table has a place for
each integer between them. Most keys are such, as sequences make them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.decode.equal_rows import DistinctRows

_FARTHEST = 8  # times as many integers may lie between them as there are: then the table is as large as that of hashes


@dataclass(frozen=True)
class CloseIntegers:
    """``places``: for each integer from ``least`` on the place of the last one that is equal, -1 if there is none."""

    least: int
    places: np.ndarray

    @classmethod
    def of(cls, numbers: np.ndarray) -> CloseIntegers | None:
        """None if they are too far apart, or none are there."""
        if not len(numbers) or (size := int(numbers.max()) - int(numbers.min()) + 1) > _FARTHEST * len(numbers):
            return None
        least, places = int(numbers.min()), np.full(size, -1, np.int32)
        places[numbers - least] = np.arange(len(numbers), dtype=np.int32)  # NumPy assigns in order: the last one wins
        return cls(least, places)

    def ranked(self) -> tuple[np.ndarray, np.ndarray]:
        """The distinct integers in ascending order; and for each from ``least`` on its place among them, if it is
        there."""
        is_there = self.places >= 0
        return np.flatnonzero(is_there) + self.least, np.cumsum(is_there, dtype=np.int32) - 1

    def places_of(self, others: pa.Table) -> pa.Array:
        """As ``DistinctRows.places_of``."""
        (column,) = others.columns
        # far from ``least`` the difference wraps around, but never into the table
        numbers = np.asarray(pc.fill_null(column, 0).to_numpy(), dtype=np.int64) - self.least
        is_inside = (numbers >= 0) & (numbers < len(self.places))
        places = np.where(is_inside, self.places[np.where(is_inside, numbers, 0)], -1).astype(np.int64)
        is_null = np.asarray(column.is_null().to_numpy())
        return pa.array(places, mask=(places < 0) | is_null)


def by_key(keys: pa.Table) -> CloseIntegers | DistinctRows | None:
    """To look up the places of other keys among these, which are ``comparable``. None if two of them are equal."""
    if keys.num_columns == 1 and pa.types.is_signed_integer(keys.column(0).type) and not keys.column(0).null_count:
        numbers = np.asarray(keys.column(0).to_numpy(), dtype=np.int64)
        close = CloseIntegers.of(numbers)
        if close is not None:
            return close if np.count_nonzero(close.places >= 0) == len(numbers) else None
    return DistinctRows.of(keys)
