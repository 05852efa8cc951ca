"""The old and the new side of changes: the values that each has, and the columns that were not sent with it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_jobs.apply.net_change.actions import Spans
from spark_jobs.apply.net_change.rows import typed_values
from spark_jobs.decode.columnar import DELETE, UPDATE
from spark_jobs.decode.ordered_changes import OrderedChanges
from spark_jobs.decode.threads import in_threads
from spark_jobs.decode.tuple_vectors import ABSENT, NULL, UNCHANGED
from spark_jobs.decode.values import Fitted


@dataclass(frozen=True)
class SideValues:
    """``fitted``: the values of each of the shape's columns. ``not_sent``: for each side the names of the columns that
    it lacks; null if it lacks none."""

    fitted: list[Fitted]
    not_sent: pa.Array

    @property
    def columns(self) -> list[pa.ChunkedArray]:
        return [each.values for each in self.fitted]


@dataclass(frozen=True)
class Sides:
    """Some sides of ``ordered``. ``slots``: each one's change. ``is_old``: whether it is the old side."""

    ordered: OrderedChanges
    slots: np.ndarray
    is_old: np.ndarray

    @classmethod
    def old(cls, ordered: OrderedChanges) -> Sides:
        """Of deletes, and of updates that came with an old row or its key."""
        changes = ordered.changes
        slots = np.flatnonzero((changes.kinds == DELETE) | ((changes.kinds == UPDATE) & (changes.old_slots >= 0)))
        return cls(ordered, slots, np.ones(len(slots), dtype=bool))

    @classmethod
    def new(cls, ordered: OrderedChanges) -> Sides:
        """Of inserts and updates."""
        slots = np.flatnonzero(ordered.changes.kinds != DELETE)
        return cls(ordered, slots, np.zeros(len(slots), dtype=bool))

    @classmethod
    def in_order(cls, ordered: OrderedChanges) -> Sides:
        """All of them; an update's old side comes right before its new one."""
        old, new = cls.old(ordered).slots, cls.new(ordered).slots
        order = np.argsort(np.concatenate([2 * old, 2 * new + 1]))
        is_old = np.repeat([True, False], [len(old), len(new)])
        return cls(ordered, np.concatenate([old, new])[order], is_old[order])

    def values(self) -> SideValues:
        """Raises DecodeError, UnrepresentableError."""
        is_whole = self.ordered.has_whole_old_row[self.slots]
        columns = [self._column(index, is_whole) for index in range(len(self.ordered.shape.columns))]

        def typed(index: int) -> Fitted:
            return typed_values(self.ordered, index, columns[index][0])

        values = in_threads(typed, range(len(columns)), len(self.slots))
        return SideValues(values, self._names_of([lacks for _, lacks in columns]))

    def _names_of(self, lacks: list[np.ndarray]) -> pa.Array:
        marked = np.stack(lacks, axis=1)
        rows, columns = np.nonzero(marked)
        counts = np.bincount(rows, minlength=len(marked))
        names = pa.array([column.name for column in self.ordered.shape.columns], pa.string()).take(pa.array(columns))
        offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
        return pa.ListArray.from_arrays(offsets, names, mask=pa.array(counts == 0))

    def _column(self, index: int, is_whole: np.ndarray) -> tuple[Spans, np.ndarray]:
        """The column's values, and for each side whether the message had none for it, not even null. An unchanged value
        that is stored out of line is taken from the old row, if that has it."""
        changes, slots = self.ordered.changes, self.slots
        unchanged = (changes.new.kinds[index, slots] == UNCHANGED) & changes.in_old(index)[slots]
        from_old = unchanged | (self.is_old & (changes.old_slots[slots] >= 0))
        starts, lengths, kinds = changes.spans(index, slots, from_old)
        # an old row that is only a key has nulls in all other columns; a key itself is never null
        lacks = (kinds == UNCHANGED) | (kinds == ABSENT) | (self.is_old & ~is_whole & (kinds == NULL))
        return Spans.of(starts, lengths, kinds), lacks
