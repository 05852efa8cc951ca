"""What a net change makes of the rows of a table without a key: of each row that loses copies, as many go.

Rows are equal if PostgreSQL prints them alike; nulls are equal. Commit columns do not count: of rows that are equal but
for these, the oldest go. Which copies are the oldest only all of them can tell, so these are looked for first. Without
commit columns it makes no difference which copies go: those that are read first do. That of Spark: ``copies_merge``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.decode.equal_rows import DistinctRows, EqualRows, comparable_rows
from spark_jobs.options.table_mode import holds_changes
from spark_jobs.schema.net_columns import COPIES
from spark_jobs.writers.net_source import NetSource
from spark_jobs.writers.with_arrow.rewritten_rows import KeyedChange, RowChange, RowPiece, as_written, in_lake_types

_NEVER = -(2**63)  # older than all commits


def row_change(net: NetSource, most: int) -> RowChange:
    """A net change whose rows are in memory. ``most``: bytes of the table's rows that it may hold there as well."""
    if net.columns.shape.has_key or holds_changes(net.columns.mode):
        return KeyedChange(net)
    return CopiesChange(net, most)


@dataclass
class CopiesChange:
    """Of a table without a key. See ``RowChange``. ``most``: bytes of the table's rows that it may hold."""

    net: NetSource
    most: int
    _seen: list[pa.Table] = field(default_factory=list)  # with commit columns, rows of which a copy goes

    @cached_property
    def matched_columns(self) -> tuple[str, ...]:
        shape = self.net.columns.shape
        return tuple(column.name for column in (shape.columns if self.looks_ahead else shape.source_columns))

    @cached_property
    def looks_ahead(self) -> bool:
        shape = self.net.columns.shape
        return shape.columns != shape.source_columns

    def touches(self, parts: Iterable[pa.Table]) -> bool:
        if not self.looks_ahead:
            return any(len(self._equal(part)[0]) for part in parts)
        seen = len(self._seen)
        for part in parts:
            if self._is_too_much:
                break
            rows, _ = self._equal(part)
            self._seen += [in_lake_types(self.net.columns, part).take(rows)] if len(rows) else []
        return len(self._seen) > seen

    def added(self, most: int) -> list[RowPiece] | None:
        if self._is_too_much or self._leaving is None:
            return None
        return RowPiece.parts(self._new.filter(pa.array(self._leaving.is_left)), most)

    def kept(self, table_rows: pa.Table) -> pa.Table:
        assert self._leaving is not None, "nobody is asked if a row is missing"
        rows = in_lake_types(self.net.columns, table_rows)
        places, among = self._leaving.rows.found(comparable_rows(rows.select(self.matched_columns)))
        if not len(places):
            return rows
        is_left = np.ones(rows.num_rows, dtype=bool)
        is_left[places[self._leaving.take(among)]] = False
        return rows.filter(pa.array(is_left))

    @property
    def is_done(self) -> bool:
        return self.net.lenient or self._leaving is None or bool((self._leaving.copies == 0).all())

    @property
    def _is_too_much(self) -> bool:
        return bool(sum(rows.nbytes for rows in self._seen) > self.most)

    @cached_property
    def _going(self) -> pa.Table:
        return self.net.rows_in_memory.filter(pc.less(self.net.rows_in_memory.column(COPIES.name), 0))

    @cached_property
    def _new(self) -> pa.Table:
        """Each copy that is added."""
        copies = np.maximum(self.net.rows_in_memory.column(COPIES.name).to_numpy(), 0)
        return as_written(self.net.columns, self.net.rows_in_memory).take(np.repeat(np.arange(len(copies)), copies))

    @cached_property
    def _lost(self) -> DistinctRows:
        lost = DistinctRows.of(self._of_source(as_written(self.net.columns, self._going)))
        assert lost is not None, "a net change has each row that goes once"
        return lost

    @cached_property
    def _leaving(self) -> _Leaving | None:
        """None if one of them is missing."""
        copies = -self._going.column(COPIES.name).to_numpy()
        if self.looks_ahead:
            return self._oldest(copies)
        return _Leaving(self._lost, copies, np.ones(self._new.num_rows, dtype=bool))

    def _oldest(self, copies: np.ndarray) -> _Leaving | None:
        """No added row is older than one that was there. So it makes no difference at which change of the range a row
        goes."""
        new, columns = self._new, self.net.columns.shape.columns
        seen = pa.concat_tables([new.slice(0, 0), *self._seen])
        rows = pa.concat_tables([seen, new])
        places, among = self._lost.found(self._of_source(rows))
        ages = [rows.column(each.name).cast(pa.int64()).take(places) for each in reversed(columns) if each.of_commit]
        turns = _turns(among, [pc.fill_null(age, _NEVER).to_numpy() for age in ages])
        if not self.net.lenient and (np.bincount(among, minlength=len(copies)) < copies).any():
            return None
        going = places[turns < copies[among]]
        is_left = np.ones(rows.num_rows, dtype=bool)
        is_left[going] = False
        of_table = comparable_rows(rows.take(going[going < seen.num_rows]))
        equal = EqualRows.of(of_table)
        distinct = DistinctRows.of(of_table.take(equal.firsts))
        assert distinct is not None
        return _Leaving(distinct, np.bincount(equal.sets, minlength=len(equal.firsts)), is_left[seen.num_rows :])

    def _equal(self, table_rows: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        return self._lost.found(self._of_source(in_lake_types(self.net.columns, table_rows)))

    def _of_source(self, rows: pa.Table) -> pa.Table:
        return comparable_rows(rows.select([column.name for column in self.net.columns.shape.source_columns]))


@dataclass
class _Leaving:
    """``rows`` of a table, and how many ``copies`` of each are still to be deleted. ``is_left``: which of the added
    rows are written."""

    rows: DistinctRows
    copies: np.ndarray
    is_left: np.ndarray
    _lock: Lock = field(default_factory=Lock)

    def take(self, places: np.ndarray) -> np.ndarray:
        """Which of the table's rows that are equal to those at these places are deleted."""
        with self._lock:
            goes: np.ndarray = _turns(places) < self.copies[places]
            np.subtract.at(self.copies, places[goes], 1)
        return goes


def _turns(places: np.ndarray, ages: Sequence[np.ndarray] = ()) -> np.ndarray:
    """How many with the same place come before each, by the last of ``ages``, then the one before it, and so on."""
    order = np.lexsort((*ages, places))
    ascending = places[order]
    begins = np.flatnonzero(np.concatenate([[True], ascending[1:] != ascending[:-1]])[: len(places)])
    turns = np.empty(len(places), dtype=np.int64)
    turns[order] = np.arange(len(places)) - np.repeat(begins, np.diff([*begins, len(places)]))
    return turns
