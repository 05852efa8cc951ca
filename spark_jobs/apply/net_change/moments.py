"""When changes were committed: which commit made a row what it is, as vectors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.decode.ordered_changes import OrderedChanges
from spark_jobs.schema.mode_columns import COMMIT_LSN, COMMIT_TIME
from spark_jobs.schema.net_columns import value
from spark_jobs.schema.table_shape import TableShape

NEVER = -1  # an LSN that no commit has


@dataclass(frozen=True)
class Moments:
    """Vectors of moments: their LSNs, NEVER where there is none, and their times, in microseconds since 1970, UTC."""

    lsns: np.ndarray
    times: np.ndarray
    known: np.ndarray  # whether there is a time

    @classmethod
    def never(cls, size: int) -> Moments:
        return cls(np.full(size, NEVER, np.int64), np.zeros(size, np.int64), np.zeros(size, bool))

    @classmethod
    def of(cls, ordered: OrderedChanges, rows: pa.Table) -> Moments:
        """Each change's commit. ``rows``: those that ``ordered`` was made of, with their commit times."""
        times = rows.column("commit_time").cast(pa.int64()).combine_chunks()
        microseconds = np.asarray(pc.fill_null(times, 0).to_numpy(zero_copy_only=False), dtype=np.int64)
        known = np.asarray(pc.is_valid(times).to_numpy(zero_copy_only=False), dtype=bool)
        return cls(ordered.commit_lsns, microseconds[ordered.order], known[ordered.order])

    def take(self, places: np.ndarray) -> Moments:
        return Moments(self.lsns[places], self.times[places], self.known[places])

    def where(self, condition: np.ndarray, other: Moments) -> Moments:
        """Those of ``self`` where the condition holds, else those of ``other``."""
        return Moments(
            np.where(condition, self.lsns, other.lsns),
            np.where(condition, self.times, other.times),
            np.where(condition, self.known, other.known),
        )

    @property
    def lsn_array(self) -> pa.Array:
        return pa.array(self.lsns, mask=self.lsns == NEVER)

    @property
    def time_array(self) -> pa.Array:
        return pa.array(self.times, mask=~self.known).cast(pa.timestamp("us", tz="UTC"))

    def then(self, other: Moments) -> Moments:
        """Both, one after the other."""
        pairs = zip((self.lsns, self.times, self.known), (other.lsns, other.times, other.known), strict=True)
        return Moments(*map(np.concatenate, pairs))

    def otherwise(self, other: Moments) -> Moments:
        """Those of ``other`` where there is none."""
        return self.where(self.lsns != NEVER, other)

    def values(self, written: TableShape) -> dict[str, pa.Array]:
        """The commit columns of ``written``, as columns of a net change."""
        arrays = {COMMIT_LSN.name: self.lsn_array, COMMIT_TIME.name: self.time_array}
        return {value(i): arrays[column.name] for i, column in enumerate(written.columns) if column.of_commit}
