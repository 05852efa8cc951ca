"""Mode ``append``: every change as a row of its own, in the table's types."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.apply.net_change.actions import Spans
from spark_jobs.apply.net_change.rows import typed_values
from spark_jobs.decode.columnar import DELETE, INSERT, UPDATE
from spark_jobs.decode.ordered_changes import OrderedChanges
from spark_jobs.decode.threads import in_threads
from spark_jobs.decode.tuple_vectors import ABSENT, NULL, UNCHANGED, has_value
from spark_jobs.decode.values import OnUnrepresentable
from spark_jobs.schema.mode_columns import CHANGE, COMMIT_LSN, COMMIT_TIME, NOT_SENT, ORDINAL, XID
from spark_jobs.schema.net_columns import NetColumns, arrow_schema, value
from spark_jobs.schema.table_shape import TableShape


def appended_changes(ordered: OrderedChanges, rows: pa.Table, *, on_unrepresentable: OnUnrepresentable) -> pa.Table:
    """One row per change, in total order; an update's old row, if it was sent, comes right before its new one.

    ``rows``: those that ``ordered`` was made of, with ``commit_time`` and ``xid``. Raises DecodeError,
    UnrepresentableError.
    """
    shape, sides = ordered.shape, _Sides.of(ordered)
    found = [sides.column(index) for index in range(len(shape.columns))]

    def typed(index: int) -> pa.ChunkedArray:
        return typed_values(ordered, index, found[index].spans, on_unrepresentable)

    values = in_threads(typed, range(len(found)))
    given = pa.array(ordered.order[sides.slots])
    named = {value(index): array for index, array in enumerate(values)}
    named |= {
        CHANGE.net: sides.operations,
        COMMIT_LSN.net: pa.array(ordered.commit_lsns[sides.slots]),
        ORDINAL.net: pa.array(ordered.ordinals[sides.slots]),
        COMMIT_TIME.net: rows.column("commit_time").take(given),
        XID.net: rows.column("xid").take(given),
        NOT_SENT.net: _names_of([column.lacks for column in found], shape),
    }
    return pa.table(named).cast(_schema(shape))


def appended_truncates(truncates: pa.Table, shape: TableShape) -> pa.Table:
    """One row without values per TRUNCATE. ``truncates``: the change log's rows of kind T."""
    schema, size = _schema(shape), len(truncates)
    named = {
        CHANGE.net: pa.array(["truncate"] * size, pa.string()),
        **{column.net: truncates.column(column.net) for column in (COMMIT_LSN, ORDINAL, COMMIT_TIME, XID)},
    }
    arrays = [named[field.name] if field.name in named else pa.nulls(size, field.type) for field in schema]
    return pa.Table.from_arrays(arrays, names=schema.names).cast(schema)


def _schema(shape: TableShape) -> pa.Schema:
    return arrow_schema(NetColumns(shape, mode="append").fields)


@dataclass(frozen=True)
class _Column:
    """``lacks``: for each row, whether the message had no value for the column, not even null."""

    spans: Spans
    lacks: np.ndarray


@dataclass(frozen=True)
class _Sides:
    """The rows that changes are split into. ``slots``: each row's change. ``is_old``: whether it is the old side;
    ``is_whole``: whether that has every column."""

    ordered: OrderedChanges
    slots: np.ndarray
    is_old: np.ndarray
    is_whole: np.ndarray

    @classmethod
    def of(cls, ordered: OrderedChanges) -> _Sides:
        changes = ordered.changes
        old = np.flatnonzero((changes.kinds == DELETE) | ((changes.kinds == UPDATE) & (changes.old_slots >= 0)))
        new = np.flatnonzero(changes.kinds != DELETE)
        order = np.argsort(np.concatenate([2 * old, 2 * new + 1]))
        is_old = np.repeat([True, False], [len(old), len(new)])
        slots = np.concatenate([old, new])[order]
        return cls(ordered, slots, is_old[order], ordered.has_whole_old_row[slots])

    @property
    def operations(self) -> pa.Array:
        kinds = self.ordered.changes.kinds[self.slots]
        updates = pc.if_else(pa.array(self.is_old), "update_before", "update")
        return pc.if_else(pa.array(kinds == INSERT), "insert", pc.if_else(pa.array(kinds == DELETE), "delete", updates))

    def column(self, index: int) -> _Column:
        """An unchanged value that is stored out of line is taken from the old row, if that has it."""
        changes, slots = self.ordered.changes, self.slots
        has_old = changes.old_slots[slots] >= 0
        at = np.where(has_old, changes.old_slots[slots], 0)
        in_old = changes.of_old(has_value(changes.old.kinds[index]))[slots]
        from_old = (self.is_old & has_old) | ((changes.new.kinds[index, slots] == UNCHANGED) & in_old)
        kinds, starts, lengths = (
            np.where(from_old, old[index, at], new[index, slots]) if old.shape[1] else new[index, slots]
            for old, new in (
                (changes.old.kinds, changes.new.kinds),
                (changes.old.starts, changes.new.starts),
                (changes.old.lengths, changes.new.lengths),
            )
        )
        # an old row that is only a key has nulls in all other columns; a key itself is never null
        lacks = (kinds == UNCHANGED) | (kinds == ABSENT) | (self.is_old & ~self.is_whole & (kinds == NULL))
        return _Column(Spans.of(starts, lengths, kinds), lacks)


def _names_of(lacks: list[np.ndarray], shape: TableShape) -> pa.Array:
    """For each row the names of the columns that it lacks; null if it lacks none."""
    marked = np.stack(lacks, axis=1)
    rows, columns = np.nonzero(marked)
    counts = np.bincount(rows, minlength=len(marked))
    names = pa.array([column.name for column in shape.columns], pa.string()).take(pa.array(columns))
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, names, mask=pa.array(counts == 0))
