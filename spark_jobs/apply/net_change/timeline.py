"""Actions, and for each the commit that ended the state it left: the key's next action, or a TRUNCATE, which ends all.

For modes ``soft_delete`` and ``history``, in which a TRUNCATE voids nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_jobs.apply.net_change.actions import Actions
from spark_jobs.apply.net_change.moments import NEVER, Moments
from spark_jobs.apply.net_change.truncates import Truncation
from spark_jobs.decode.ordered_changes import OrderedChanges
from spark_jobs.logicalrep.lsn import Position


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
        begun = Moments.of(ordered, rows).take(actions.slots)
        following = _next_of_key(actions)
        epochs = _epochs(ordered, truncates)[actions.slots]
        by_key = begun.take(np.maximum(following, 0)).where(following >= 0, Moments.never(len(actions)))
        by_truncate = _of(truncates).take(epochs)
        # the TRUNCATE came first if the key has no next action, or only one after the TRUNCATE
        truncated_first = (epochs < len(truncates)) & ((following < 0) | (epochs[np.maximum(following, 0)] > epochs))
        return cls(actions, begun, by_truncate.where(truncated_first, by_key), epochs > 0)


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
