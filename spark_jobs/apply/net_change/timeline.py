"""Actions, and for each the commit that ended the state it left: the key's next action, or a TRUNCATE, which ends all.

For modes ``soft_delete`` and ``history``, in which a TRUNCATE voids nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.apply.net_change.actions import Actions
from spark_jobs.apply.net_change.truncates import Truncation
from spark_jobs.decode.ordered_changes import OrderedChanges
from spark_jobs.logicalrep.lsn import Position

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


@dataclass(frozen=True)
class Timeline:
    """For each action: ``begun``, its own commit; ``ended``, the commit that ended the state it left; ``truncated``,
    whether a TRUNCATE came before it in the range."""

    actions: Actions
    begun: Moments
    ended: Moments
    truncated: np.ndarray

    @classmethod
    def of(cls, actions: Actions, rows: pa.Table, truncates: tuple[Truncation, ...]) -> Timeline:
        """``rows``: those that ``actions.ordered`` was made of, with their commit times; ``truncates`` in order."""
        ordered = actions.ordered
        begun = _moments(ordered, rows).take(actions.slots)
        following = _next_of_key(actions)
        epochs = _epochs(ordered, truncates)[actions.slots]
        by_key = begun.take(np.maximum(following, 0)).where(following >= 0, Moments.never(len(actions)))
        by_truncate = _of(truncates).take(epochs)
        # the TRUNCATE came first if the key has no next action, or only one after the TRUNCATE
        truncated_first = (epochs < len(truncates)) & ((following < 0) | (epochs[np.maximum(following, 0)] > epochs))
        return cls(actions, begun, by_truncate.where(truncated_first, by_key), epochs > 0)


def _moments(ordered: OrderedChanges, rows: pa.Table) -> Moments:
    times = rows.column("commit_time").cast(pa.int64()).combine_chunks()
    microseconds = np.asarray(pc.fill_null(times, 0).to_numpy(zero_copy_only=False), dtype=np.int64)
    known = np.asarray(pc.is_valid(times).to_numpy(zero_copy_only=False), dtype=bool)
    return Moments(ordered.commit_lsns, microseconds[ordered.order], known[ordered.order])


def _of(truncates: tuple[Truncation, ...]) -> Moments:
    """When the TRUNCATEs were committed, and one more element that stands for no commit."""
    moments = [truncation.moment for truncation in truncates]
    lsns = [*(int(moment.lsn) for moment in moments), NEVER]
    times = [*(moment.at or 0 for moment in moments), 0]
    known = [*(moment.at is not None for moment in moments), False]
    return Moments(np.array(lsns, np.int64), np.array(times, np.int64), np.array(known, bool))


def _next_of_key(actions: Actions) -> np.ndarray:
    """For each action the next one with the same key, -1 if there is none."""
    following = np.full(len(actions), -1, dtype=np.int64)
    previous = actions.previous_of_key()
    has_previous = np.flatnonzero(previous >= 0)
    following[previous[has_previous]] = has_previous
    return following


def _epochs(ordered: OrderedChanges, truncates: tuple[Truncation, ...]) -> np.ndarray:
    """For each change the number of TRUNCATEs before it."""
    bounds = [_slots_before(ordered, each.position) for each in truncates]
    return np.searchsorted(np.array(bounds, np.int64), np.arange(len(ordered.changes)), side="right")


def _slots_before(ordered: OrderedChanges, position: Position) -> int:
    lsns = ordered.commit_lsns
    first, behind = (int(np.searchsorted(lsns, int(position.commit_lsn), side)) for side in ("left", "right"))
    return first + int(np.searchsorted(ordered.ordinals[first:behind], position.ordinal))
