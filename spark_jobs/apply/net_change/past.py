"""Modes ``soft_delete`` and ``history``, in which a TRUNCATE voids nothing: a timeline of the actions, and their rows.

In ``soft_delete`` there is one row per key, with its last values and, if it was deleted, the time of the delete. In
``history`` there is every committed version of a row, with the commits between which it was valid; a version that its
own transaction replaced was never visible and is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_jobs.apply.net_change.actions import Actions
from spark_jobs.apply.net_change.moments import NEVER, Moments
from spark_jobs.apply.net_change.rows import NetRows, outcome_of
from spark_jobs.apply.net_change.truncates import Truncation
from spark_jobs.decode.ordered_changes import OrderedChanges
from spark_jobs.logicalrep.lsn import Position
from spark_jobs.options.table_mode import Mode, has_versions
from spark_jobs.schema.mode_columns import DELETED_AT, VALID_FROM, VALID_FROM_LSN, VALID_TO, VALID_TO_LSN
from spark_jobs.schema.net_columns import NetColumns
from spark_jobs.schema.table_shape import TableShape


@dataclass(frozen=True)
class Timeline:
    """For each action: ``begun``, its own commit; ``ended``, the commit that ended the state it left: that of the key's
    next action, or of a TRUNCATE, which ends all; ``truncated``, whether a TRUNCATE came before it in the range."""

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


def past_rows(mode: Mode, timeline: Timeline, written: TableShape, *, lenient: bool) -> NetRows:
    """``lenient``: see ``_history_rows``. Raises as ``net_rows`` does."""
    if has_versions(mode):
        return _history_rows(timeline, written, lenient=lenient)
    return _soft_delete_rows(timeline, written)


def _soft_delete_rows(timeline: Timeline, written: TableShape) -> NetRows:
    """A key that was inserted and deleted in the range leaves its last values too. A key that was only deleted has no
    values: the table keeps its own."""
    actions = timeline.actions
    rows = np.sort(_chosen(timeline))
    is_put = actions.is_put[rows]
    outcome = outcome_of(actions, rows, is_put)
    outcome.require_no_earlier_row(timeline.truncated[outcome.roots])
    begun = timeline.begun.take(rows)
    deleted = timeline.ended.take(rows).where(is_put, begun)
    columns = NetColumns(written, outcome.unchanged, outcome.old_keys, "soft_delete")
    named = {**outcome.named, DELETED_AT.net: deleted.time_array}
    return NetRows.of(columns, named, deleted.otherwise(begun), np.zeros(len(rows), dtype=bool))


def _chosen(timeline: Timeline) -> np.ndarray:
    """For each key its last put; if it has none, its first delete."""
    actions = timeline.actions
    chosen = actions.first_of_key()
    puts = np.flatnonzero(actions.is_put)
    chosen[actions.codes[puts]] = puts  # NumPy assigns in order: the last one wins
    return chosen[chosen >= 0]


def _history_rows(timeline: Timeline, written: TableShape, *, lenient: bool) -> NetRows:
    """Upserts are versions that begin. A delete ends the key's open version in the table, and says when it ended.

    ``lenient``: an inserted key may already be in the table, as its delete was not published.
    """
    actions = timeline.actions
    visible = timeline.begun.lsns != timeline.ended.lsns
    versions = np.flatnonzero(actions.is_put & visible)
    ending = _ending(timeline, lenient=lenient)
    rows = np.concatenate([ending, versions])
    begins = np.repeat([False, True], [len(ending), len(versions)])
    outcome = outcome_of(actions, rows, begins)
    outcome.require_no_earlier_row(timeline.truncated[outcome.roots])
    begun, ended = timeline.begun.take(rows), timeline.ended.take(rows)
    never = Moments.never(len(rows))
    since, until = begun.where(begins, never), ended.where(begins, begun)
    columns = NetColumns(written, outcome.unchanged, outcome.old_keys, "history")
    named = {
        **outcome.named,
        VALID_FROM_LSN.net: since.lsn_array,
        VALID_FROM.net: since.time_array,
        VALID_TO_LSN.net: until.lsn_array,
        VALID_TO.net: until.time_array,
    }
    return NetRows.of(columns, named, until.otherwise(since), begins)


def _ending(timeline: Timeline, *, lenient: bool) -> np.ndarray:
    """For each key the action that ends the version that the table held before the range. After a TRUNCATE there is
    none."""
    actions = timeline.actions
    first = actions.first_of_key()
    first = first[first >= 0]
    ends = (~actions.fresh[first] | lenient) & ~timeline.truncated[first]
    return np.sort(first[ends])


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
