"""Where an unchanged TOAST value comes from: the last action before it that has it, else the table.

Each put that lacks a column's value points to the action that left the row before it: the previous action of the same
key or, for the put of a key move, of the old key. These pointers are followed to their ends for all rows at once, with
steps that double each time, through any number of updates and moves (a → b → c, swaps).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spark_jobs.apply.net_change.actions import Actions, Spans
from spark_jobs.decode.columnar import INSERT
from spark_jobs.decode.tuple_vectors import UNCHANGED
from spark_jobs.errors import NeedsSnapshotError, new_snapshot
from spark_jobs.schema.table_faults import whole_rows_sql


@dataclass(frozen=True)
class Carried:
    """One column's values for the wanted actions.

    ``kept``: where the table keeps its own value; None if every value is known. That value is in the row whose key the
    action in ``roots`` started from.
    """

    spans: Spans
    kept: np.ndarray | None
    roots: np.ndarray


@dataclass(frozen=True)
class Carry:
    """``before``: for each action the one whose result it started from, -1 for the table's state before the range."""

    actions: Actions
    before: np.ndarray

    @classmethod
    def of(cls, actions: Actions) -> Carry:
        previous = actions.previous_of_key()
        before = previous.copy()
        # the put of a move starts from the row that its own delete, the action right before it, found
        puts = np.flatnonzero(actions.moved)
        before[puts] = previous[puts - 1]
        return cls(actions, before)

    def column(self, column: int, puts: np.ndarray) -> Carried:
        """``puts``: those to read. Raises NeedsSnapshotError where a value depends on a deleted row."""
        unknown = unknown_puts(self.actions, column)
        places = np.arange(len(unknown))
        after_delete = unknown & (self.before >= 0) & ~self.actions.is_put[self.before]
        if self.actions.split:
            after_delete |= unknown & self.actions.moved  # the other half is in another partition: ``leans``
        elif after_delete.any():
            self._refuse(after_delete)
        roots = np.where(unknown & (self.before >= 0) & ~after_delete, self.before, places)
        while True:
            further = roots[roots]
            if (further == roots).all():
                break
            roots = further
        ends = roots[puts]
        if after_delete[ends].any():  # the partial step dropped changes: only what the outcome depends on is complete
            self._refuse(np.isin(places, ends) & after_delete)
        kept = unknown[ends]
        spans = known_spans(self.actions, column, ends)
        return Carried(spans, kept if kept.any() else None, ends)

    def _refuse(self, wrong: np.ndarray) -> None:
        ordered = self.actions.ordered
        at = ordered.position(int(self.actions.slots[np.argmax(wrong)]))
        raise NeedsSnapshotError(
            f"the update of {ordered.shape.name} at {at} leaves a value unchanged in a row that was deleted before",
            hint=f"the change log is not a whole history of this table; {new_snapshot(ordered.shape.name)}",
        )


def has_unchanged(actions: Actions, column: int) -> bool:
    return bool((actions.ordered.changes.new.kinds[column] == UNCHANGED).any())


def unknown_puts(actions: Actions, column: int) -> np.ndarray:
    """Which actions are puts whose own message lacks this column, also in the old tuple.

    An unchanged value is not null, so an old tuple with null does not hold it: that tuple is only a key, whatever its
    letter says (see ``TableShape.leaf_identities``).
    """
    changes = actions.ordered.changes
    unchanged = changes.new.kinds[column] == UNCHANGED
    if (unchanged & (changes.kinds == INSERT)).any():
        slot = int(np.argmax(unchanged & (changes.kinds == INSERT)))
        ordered, shape = actions.ordered, actions.ordered.shape
        whole = whole_rows_sql(shape.relation, partitioned=bool(shape.leaf_identities))
        raise NeedsSnapshotError(
            f"the row that enters {shape.name} by an update at {ordered.position(slot)} arrived without the value"
            f" of column {shape.columns[column].name}, which is stored out of line and was not changed",
            hint=f"a row filter lets it in; such values are sent after this statement: {whole}",
        )
    return np.asarray(actions.is_put & (unchanged & ~changes.in_old(column))[actions.slots])


def known_spans(actions: Actions, column: int, puts: np.ndarray) -> Spans:
    """The column's values in the messages of these puts; null where a value is null or unknown."""
    changes, slots = actions.ordered.changes, actions.slots[puts]
    from_old = (changes.new.kinds[column, slots] == UNCHANGED) & changes.in_old(column)[slots]
    return Spans.of(*changes.spans(column, slots, from_old))
