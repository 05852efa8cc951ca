"""The outcome: actions → one typed row per key. Only values that the outcome needs are copied and cast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_jobs.apply.net_change.actions import Actions, Spans
from spark_jobs.apply.net_change.carry import Carried, Carry, has_unchanged, known_spans
from spark_jobs.apply.net_change.moments import Moments
from spark_jobs.decode.binary.cast import cast_binary
from spark_jobs.decode.ordered_changes import OrderedChanges
from spark_jobs.decode.threads import in_threads
from spark_jobs.decode.values import Fitted, cast_text
from spark_jobs.errors import DecodeError, NeedsSnapshotError, UnrepresentableError
from spark_jobs.schema.net_columns import (
    DELETE,
    MISFIT_LSN,
    OPERATION,
    UPSERT,
    NetColumns,
    misfit,
    misfit_fields,
    old_key,
    unchanged,
    value,
)
from spark_jobs.schema.table_shape import TableShape


@dataclass(frozen=True)
class NetRows:
    """``rows`` of ``columns``, one per key. ``fresh``: which rows are upserts of keys that had no row before the
    range."""

    columns: NetColumns
    rows: pa.Table
    fresh: np.ndarray

    @classmethod
    def of(
        cls,
        columns: NetColumns,
        named: Mapping[str, pa.Array | pa.ChunkedArray],
        written_by: Moments,
        fresh: np.ndarray,
    ) -> NetRows:
        """``named``: the columns but for those of the commit, with those of misfits if there are any. ``written_by``:
        the commit that last wrote each row."""
        arrays, names = {**named, **written_by.values(columns.shape)}, [field.name for field in columns.fields]
        names += [field.name for field in misfit_fields(columns.shape) if field.name in named]
        return cls(columns, pa.table([arrays[name] for name in names], names), fresh)


def net_rows(
    actions: Actions,
    written: TableShape,
    moments: Moments,
    *,
    truncated: bool,
    lenient: bool,
) -> NetRows:
    """The last state of each key, in the columns of ``written``. ``moments``: of each change. ``truncated``: the table
    was emptied before these actions. ``lenient``: see ``NetRules``; then a key that was only there for a time is
    deleted, too.

    Raises NeedsSnapshotError, DecodeError and UnrepresentableError. They name the table and a position, or the column
    and the range.
    """
    last, first = actions.last_of_key(), actions.first_of_key()
    existed = ~(actions.is_put[first] & actions.fresh[first]) & (first >= 0)
    wanted = last >= 0
    if len(actions) and not lenient:
        wanted &= actions.is_put[last] | existed
    is_chosen = np.zeros(len(actions), dtype=bool)
    is_chosen[last[wanted]] = True
    rows = np.flatnonzero(is_chosen)  # by position, without a sort
    existed = existed[actions.codes[rows]]
    is_put = actions.is_put[rows]
    outcome = outcome_of(actions, rows, is_put)
    if truncated:
        outcome.require_no_earlier_row(np.ones(len(rows), dtype=bool))
    present = NetColumns(written, outcome.unchanged, outcome.old_keys)
    return NetRows.of(present, outcome.named, moments.take(actions.slots[rows]), is_put & ~existed)


@dataclass(frozen=True)
class Outcome:
    """The chosen actions ``rows`` as columns, ``named`` as in ``NetColumns``. ``kept``: the rows in which some of the
    table's own values are kept. Those are in the row whose key the action in ``roots`` started from."""

    actions: Actions
    rows: np.ndarray
    named: dict[str, pa.Array | pa.ChunkedArray]
    unchanged: tuple[int, ...]
    old_keys: tuple[int, ...]
    kept: np.ndarray
    roots: np.ndarray

    def require_no_earlier_row(self, truncated: np.ndarray) -> None:
        """Raises NeedsSnapshotError if a row keeps values of a truncated row. ``truncated``: for each row, whether a
        TRUNCATE removed the row whose values it would keep."""
        wrong = self.kept & truncated
        if wrong.any():
            ordered = self.actions.ordered
            at = ordered.position(int(self.actions.slots[self.rows[np.argmax(wrong)]]))
            raise NeedsSnapshotError(f"a value of {ordered.shape.name} at {at} depends on a row that was truncated")


def outcome_of(actions: Actions, rows: np.ndarray, valued: np.ndarray) -> Outcome:
    """``rows``: actions. Those that are ``valued`` are puts and become upserts with all values; the others become
    deletes with only their key."""
    reader = _Outcome(actions, rows, valued)
    columns = in_threads(reader.column, range(len(actions.ordered.shape.columns)), len(rows))
    kept = np.zeros(len(rows), dtype=bool)
    # all columns that a row keeps come from the same row: their chains end at the same action
    roots = rows
    named: dict[str, pa.Array | pa.ChunkedArray] = {
        OPERATION: pa.array(np.where(valued, UPSERT, DELETE).astype(np.int8))
    }
    for index, column in enumerate(columns):
        named[value(index)] = column.fitted.values
        if column.kept is not None:
            kept, roots = kept | column.kept, np.where(column.kept, column.roots, roots)
    named |= misfit_columns([column.fitted for column in columns], actions.ordered.commit_lsns[actions.slots[rows]])
    flags = {index: pa.array(column.kept) for index, column in enumerate(columns) if column.kept is not None}
    old_keys = reader.old_keys(kept, roots)
    named |= {unchanged(index): flag for index, flag in flags.items()}
    named |= {old_key(index): key for index, key in old_keys.items()}
    return Outcome(actions, rows, named, tuple(flags), tuple(old_keys), kept, roots)


@dataclass(frozen=True)
class _Column:
    """One column of the outcome; ``kept`` and ``roots`` as in ``Carried``."""

    fitted: Fitted
    kept: np.ndarray | None
    roots: np.ndarray


class _Outcome:
    """Computes the outcome's columns, each independently of the others. ``rows``: the actions that become its rows.
    ``valued``: which of them have all values."""

    def __init__(self, actions: Actions, rows: np.ndarray, valued: np.ndarray) -> None:
        self._actions = actions
        self._shape: TableShape = actions.ordered.shape
        self._rows = rows
        self._puts = np.flatnonzero(valued)
        self._unchanged = {
            index
            for index, column in enumerate(self._shape.columns)
            if not column.key and has_unchanged(actions, index)
        }
        self._carry = Carry.of(actions) if self._unchanged else None

    def column(self, index: int) -> _Column:
        if self._shape.columns[index].key:
            return _Column(self._key(index, self._rows, ~self._actions.is_put[self._rows]), None, self._rows)
        carried = self._carried(index)
        everywhere = len(self._puts) == len(self._rows)
        spans = carried.spans if everywhere else _spread(carried.spans, self._puts, len(self._rows))
        values = typed_values(self._actions.ordered, index, spans)
        if carried.kept is None:
            return _Column(values, None, self._rows)
        kept = np.zeros(len(self._rows), dtype=bool)
        kept[self._puts] = carried.kept
        roots = self._rows.copy()
        roots[self._puts] = carried.roots
        return _Column(values, kept, roots)

    def old_keys(self, kept: np.ndarray, roots: np.ndarray) -> dict[int, pa.ChunkedArray]:
        """By index of the key column: for rows with kept values whose key changed, the key under which the table holds
        these values."""
        actions = self._actions
        moved = kept & (actions.start_codes[roots] != actions.codes[self._rows])
        if not moved.any():
            return {}
        left = roots[moved]
        places = np.full(len(self._rows), len(left), dtype=np.int64)
        places[moved] = np.arange(len(left))
        columns = {}
        for index in self._shape.key_indices:
            values = self._key(index, left, actions.moved[left]).values.combine_chunks()
            nothing = pa.nulls(1, values.type)
            columns[index] = pa.concat_arrays([values, nothing]).take(pa.array(places))
        return columns

    def _carried(self, index: int) -> Carried:
        puts = self._rows[self._puts]
        if self._carry is None or index not in self._unchanged:
            return Carried(known_spans(self._actions, index, puts), None, puts)
        return self._carry.column(index, puts)

    def _key(self, index: int, actions: np.ndarray, from_old: np.ndarray) -> Fitted:
        return typed_values(self._actions.ordered, index, self._actions.key_spans(index, actions, from_old))


def typed_values(ordered: OrderedChanges, index: int, spans: Spans) -> Fitted:
    """The values of one column in its lake type. Raises DecodeError, UnrepresentableError."""
    column = ordered.shape.columns[index]
    name, table, to = column.name, str(ordered.shape.name), column.lake_type
    policy, binary_type = column.on_unrepresentable, column.binary_type

    def in_text(values: pa.Array) -> Fitted:
        return cast_text(values, to, binary_type, name=name, table=table, on_unrepresentable=policy)

    def in_binary(values: pa.Array) -> Fitted:
        return cast_binary(values, binary_type, to, name=name, table=table, on_unrepresentable=policy)

    try:
        return spans.cast(ordered.changes.data, in_text, in_binary, to.arrow)
    except (DecodeError, UnrepresentableError) as error:
        span = f"in the changes {ordered.position(0)} to {ordered.position(len(ordered.changes) - 1)}"
        raise type(error)(f"{error.what}, {span}", hint=error.hint) from None


def misfit_columns(columns: Sequence[Fitted], lsns: np.ndarray) -> dict[str, pa.Array | pa.ChunkedArray]:
    """Those that rows of these ``columns``, in the shape's order, need for misfits. ``lsns``: of each row's commit."""
    misfits = {misfit(index): column.misfits for index, column in enumerate(columns) if column.misfits is not None}
    return {**misfits, MISFIT_LSN.name: pa.array(lsns)} if misfits else {}


def _spread(spans: Spans, rows: np.ndarray, size: int) -> Spans:
    """The spans at these rows, null elsewhere."""
    starts, lengths = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    valid = np.zeros(size, dtype=bool)
    starts[rows], lengths[rows], valid[rows] = spans.starts, spans.lengths, spans.valid
    if spans.binary is None:
        return Spans(starts, lengths, valid)
    binary = np.zeros(size, dtype=bool)
    binary[rows] = spans.binary
    return Spans(starts, lengths, valid, binary)
