"""Changes of one table in a range → one row per key: its last state, ready to be written. For a table without a key,
see ``multiset``; the rules below are those of mode ``mirror``.

A pure function of the change-log rows, taken in the order of (commit LSN, ordinal). A key change is a delete of the old
key and an insert of the new one. An unchanged TOAST value comes from the last change that has it, else from the table's
row under the key that the chain of changes started from. A TRUNCATE voids everything before it. A key that exists
neither before nor after the range leaves no row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.apply.net_change.actions import Actions
from spark_jobs.apply.net_change.appended import appended_changes, appended_truncates
from spark_jobs.apply.net_change.kept_past import rows_that_keep_past
from spark_jobs.apply.net_change.multiset import net_copies
from spark_jobs.apply.net_change.rows import net_rows
from spark_jobs.apply.net_change.timeline import Timeline
from spark_jobs.apply.net_change.truncates import (
    Commit,
    changes_after,
    last_truncate,
    truncate_commits,
    truncates_of,
    without_truncates,
)
from spark_jobs.change_counts import ChangeCounts
from spark_jobs.change_log.schema import RowKind
from spark_jobs.decode.ordered_changes import OrderedChanges, plain_columns
from spark_jobs.decode.values import OnUnrepresentable
from spark_jobs.errors import DecodeError
from spark_jobs.schema.net_columns import COPIES, NetColumns
from spark_jobs.schema.relation_version import RelationVersion
from spark_jobs.schema.table_shape import TableShape
from spark_jobs.table_mode import Mode, holds_changes, keeps_past


@dataclass(frozen=True)
class NetChange:
    """What to write to one table for one range of the change log.

    ``rows`` of ``columns``, one per key; a delete has only the values of the key's columns. For a table without a key,
    one for each row that comes or goes. ``truncated``: the table is emptied before the rows are written.
    ``insert_only``: every row is an upsert of a key that did not exist before the range; for a table without a key, no
    row goes. ``changes``: all changes seen, including those that a TRUNCATE voided. ``ended``: in modes ``soft_delete``
    and ``history``, the first TRUNCATE: it ends every row of the table that is not among ``rows``.
    """

    columns: NetColumns
    rows: pa.Table
    truncated: bool
    insert_only: bool
    changes: ChangeCounts
    ended: Commit | None = None


def net_change(
    rows: pa.Table,
    relations: Mapping[int, RelationVersion],
    shape: TableShape,
    *,
    mode: Mode = "mirror",
    lenient: bool = False,
    on_unrepresentable: OnUnrepresentable = "error",
) -> NetChange:
    """``rows``: change-log rows of one table, kinds I, U, D and T, in any order; ``relations``: the relation
    versions, each mapped to the shape's columns. ``lenient``: an inserted key may already be in the table.

    Raises DecodeError, UnrepresentableError, NeedsSnapshotError; all name the table and the position or range.
    """
    rows = plain_columns(rows)
    counts = _counts(rows, shape)
    if not keeps_past(mode):
        return _mirrored(rows, relations, shape, on_unrepresentable, counts)
    changes = without_truncates(rows)
    ordered = OrderedChanges.of(changes, relations, shape)
    truncates = truncate_commits(rows, shape)
    if holds_changes(mode):
        appended = appended_changes(ordered, changes, on_unrepresentable=on_unrepresentable)
        appended = pa.concat_tables([appended, appended_truncates(truncates_of(rows), shape)])
        return NetChange(NetColumns(shape, mode=mode), appended, False, True, counts)
    timeline = Timeline.of(Actions.of(ordered), changes, truncates)
    net = rows_that_keep_past(mode, timeline, lenient=lenient, on_unrepresentable=on_unrepresentable)
    ended = truncates[0] if truncates else None
    return NetChange(net.columns, net.rows, False, ended is None and bool(net.fresh.all()), counts, ended)


def _mirrored(
    rows: pa.Table,
    relations: Mapping[int, RelationVersion],
    shape: TableShape,
    on_unrepresentable: OnUnrepresentable,
    counts: ChangeCounts,
) -> NetChange:
    after = last_truncate(rows, shape) if counts.truncates else None
    ordered = OrderedChanges.of(changes_after(rows, after), relations, shape)
    if not shape.has_key:
        copies = net_copies(ordered, on_unrepresentable=on_unrepresentable)
        only_come = not pc.any(pc.less(copies.column(COPIES.name), 0)).as_py()
        return NetChange(NetColumns(shape), copies, after is not None, only_come, counts)
    net = net_rows(Actions.of(ordered), truncated=after is not None, on_unrepresentable=on_unrepresentable)
    return NetChange(net.columns, net.rows, after is not None, bool(net.fresh.all()), counts)


def _counts(rows: pa.Table, shape: TableShape) -> ChangeCounts:
    known = dict.fromkeys((RowKind.INSERT, RowKind.UPDATE, RowKind.DELETE, RowKind.TRUNCATE), 0)
    for counted in pc.value_counts(rows.column("kind")).to_pylist():
        try:
            kind = RowKind(counted["values"])
        except ValueError:
            kind = RowKind.MESSAGE
        if kind not in known:
            raise DecodeError(
                f"the change log holds rows of kind {counted['values']!r} among the changes of {shape.name}"
            )
        known[kind] = counted["counts"]
    return ChangeCounts(*known.values())
