"""How the changes of one table become rows of its net change: the same on the driver and in tasks of executors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_jobs.apply.net_change.actions import Actions
from spark_jobs.apply.net_change.appended import appended_changes
from spark_jobs.apply.net_change.moments import Moments
from spark_jobs.apply.net_change.multiset import net_copies
from spark_jobs.apply.net_change.past import Timeline, past_rows
from spark_jobs.apply.net_change.rows import NetRows, net_rows
from spark_jobs.apply.net_change.truncates import Truncation, changes_after, without_truncates
from spark_jobs.decode.ordered_changes import OrderedChanges
from spark_jobs.options.table_mode import CommitColumn, Mode, holds_changes, keeps_past
from spark_jobs.schema.moment import Moment
from spark_jobs.schema.net_columns import NetColumns
from spark_jobs.schema.relation_version import RelationVersion
from spark_jobs.schema.table_shape import TableShape


@dataclass(frozen=True)
class NetRules:
    """What must be known of a table and a range. ``relations``: the relation versions, each mapped to the shape's
    columns. ``truncates``: the table's TRUNCATEs in the range, in order. ``lenient``: an inserted key may already be in
    the table. ``commit_columns``: those that the rows have."""

    shape: TableShape
    relations: Mapping[int, RelationVersion]
    mode: Mode = "mirror"
    truncates: tuple[Truncation, ...] = ()
    lenient: bool = False
    commit_columns: tuple[CommitColumn, ...] = ()

    @property
    def written(self) -> TableShape:
        """The shape of the rows."""
        return self.shape.with_commit_columns(self.commit_columns)

    @property
    def columns(self) -> NetColumns:
        """All columns that the rows may have."""
        return NetColumns.all_possible(self.written, self.mode)

    @property
    def nets_by_key(self) -> bool:
        """Whether a row comes from all changes of its key. If not, each change gives rows of its own."""
        return self.shape.has_key and not holds_changes(self.mode)

    @property
    def truncated(self) -> bool:
        """Whether the table is emptied before the rows are written."""
        return bool(self.truncates) and not keeps_past(self.mode)

    @property
    def ended(self) -> Moment | None:
        """In modes ``soft_delete`` and ``history``, the first TRUNCATE: it ends every row of the table that is not in
        the net change."""
        ends = self.truncates and self.nets_by_key and keeps_past(self.mode)
        return self.truncates[0].moment if ends else None

    def only_inserts(self, *, are_fresh: bool) -> bool:
        """Whether every row is an upsert of a key that the table lacks. ``are_fresh``: of keys that had no row before
        the range, by its changes."""
        return are_fresh and self.ended is None and not self.lenient

    def counting(self, rows: pa.Table) -> pa.Table:
        """Those of the I, U and D rows that count: in mode ``mirror`` a TRUNCATE voids all before it."""
        if self.truncated:
            return changes_after(rows, self.truncates[-1].position)
        return without_truncates(rows) if self.truncates else rows

    def actions(self, rows: pa.Table, halves: np.ndarray | None = None) -> Actions:
        """``rows``: that count. ``halves``: which part of its change each stands for."""
        ordered = OrderedChanges.of(rows, self.relations, self.shape, halves)
        return Actions.of(ordered, None if halves is None else halves[ordered.order])

    def rows_by_key(self, rows: pa.Table, halves: np.ndarray | None = None) -> NetRows:
        """``rows`` and ``halves``: as for ``actions``, with commit times where the outcome says when rows changed.

        Raises DecodeError, UnrepresentableError, NeedsSnapshotError.
        """
        actions = self.actions(rows, halves)
        if keeps_past(self.mode):
            timeline = Timeline.of(actions, rows, self.truncates)
            return past_rows(self.mode, timeline, self.written, lenient=self.lenient)
        moments = self._moments(actions.ordered, rows)
        return net_rows(actions, self.written, moments, truncated=self.truncated, lenient=self.lenient)

    def rows_of_changes(self, rows: pa.Table) -> pa.Table:
        """The outcome if not netted by key. ``rows``: that count, in mode ``append`` with ``commit_time`` and ``xid``,
        with commit columns with ``commit_time``.
        Without a key: copies of rows, to be added to those of other tasks. Raises as ``rows_by_key`` does."""
        ordered = OrderedChanges.of(rows, self.relations, self.shape)
        if holds_changes(self.mode):
            return appended_changes(ordered, rows)
        return net_copies(ordered, self.written, self._moments(ordered, rows))

    def _moments(self, ordered: OrderedChanges, rows: pa.Table) -> Moments:
        """Each change's commit, if the rows are to say it."""
        return Moments.of(ordered, rows) if self.commit_columns else Moments.never(len(ordered.changes))
