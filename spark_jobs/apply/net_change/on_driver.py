"""Changes of one table in a range → one row per key: the last state, ready to be written.

A pure function of the change-log rows. Semantics, in the order of (commit LSN, ordinal): a key change is a delete of
the old key and an insert of the new one; an unchanged TOAST value comes from the last change that has it, else from
the table's row, under the key its chain of changes started from; a TRUNCATE voids all before it; a key that was not
there before the range and is not there after it leaves no row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.apply.net_change.actions import Actions
from spark_jobs.apply.net_change.rows import net_rows
from spark_jobs.change_counts import ChangeCounts
from spark_jobs.change_log.schema import RowKind
from spark_jobs.decode.ordered_changes import OrderedChanges, plain_columns
from spark_jobs.decode.values import OnUnrepresentable
from spark_jobs.errors import DecodeError, NeedsSnapshotError
from spark_jobs.logicalrep.errors import LogicalRepError
from spark_jobs.logicalrep.lsn import Lsn, Position
from spark_jobs.logicalrep.messages import Truncate
from spark_jobs.logicalrep.pgoutput.read_message import read_message
from spark_jobs.logicalrep.test_decoding.changes import read_truncate
from spark_jobs.schema.net_columns import NetColumns
from spark_jobs.schema.table_shape import TableShape


@dataclass(frozen=True)
class NetChange:
    """What to write to one table for one range of the change log.

    ``rows`` of ``columns``, one per key; a delete has the values of the key's columns only. ``truncated``: the table is
    emptied before the rows are written. ``insert_only``: every row is an upsert of a key that did not exist before the
    range. ``changes``: those seen, the ones a TRUNCATE voided included.
    """

    columns: NetColumns
    rows: pa.Table
    truncated: bool
    insert_only: bool
    changes: ChangeCounts


def net_change(
    rows: pa.Table,
    relations: Mapping[int, bytes],
    shape: TableShape,
    *,
    on_unrepresentable: OnUnrepresentable = "error",
) -> NetChange:
    """``rows``: change-log rows of one table, kinds I, U, D and T, in any order; ``relations``: version → Relation
    message. All versions must have the shape's columns.

    Raises DecodeError, UnrepresentableError, SchemaChangeError; all name the table and the position or range.
    """
    rows = plain_columns(rows)
    counts = _counts(rows, shape)
    after = last_truncate(rows, shape) if counts.truncates else None
    ordered = OrderedChanges.of(changes_after(rows, after), relations, shape)
    net = net_rows(Actions.of(ordered), truncated=after is not None, on_unrepresentable=on_unrepresentable)
    return NetChange(
        columns=net.columns,
        rows=net.rows,
        truncated=after is not None,
        insert_only=bool(net.fresh.all()),
        changes=counts,
    )


def changes_after(rows: pa.Table, after: Position | None) -> pa.Table:
    """The I, U and D rows behind the last TRUNCATE."""
    if after is None:
        return rows
    commit_lsn, lsn = rows.column("commit_lsn"), pa.scalar(int(after.commit_lsn), pa.int64())
    later = pc.and_(pc.equal(commit_lsn, lsn), pc.greater(rows.column("ordinal"), after.ordinal))
    keep = pc.or_(pc.greater(commit_lsn, lsn), later)
    return rows.filter(pc.and_(keep, pc.not_equal(rows.column("kind"), RowKind.TRUNCATE.value)))


def last_truncate(rows: pa.Table, shape: TableShape) -> Position | None:
    """Where the table was last emptied. Raises DecodeError for a message that is no TRUNCATE of this table."""
    truncates = rows.filter(pc.equal(rows.column("kind"), RowKind.TRUNCATE.value))
    found = [
        Position(Lsn(lsn), ordinal)
        for lsn, ordinal in zip(
            truncates.column("commit_lsn").to_pylist(), truncates.column("ordinal").to_pylist(), strict=True
        )
    ]
    for position, data in zip(found, truncates.column("data").to_pylist(), strict=True):
        _check_truncate(data, position, shape)
    return max(found, default=None)


def _check_truncate(data: bytes, position: Position, shape: TableShape) -> None:
    try:
        if data.startswith(b"t"):  # a line of test_decoding
            is_of_table = (shape.name.nspname, shape.name.relname) in read_truncate(data).tables
            if not is_of_table:
                raise NeedsSnapshotError(
                    f"TRUNCATE at {position} empties a partition of {shape.name} alone: which rows it held is not told",
                    hint="take a new snapshot of this table",
                )
            return
        message = read_message(data)
    except LogicalRepError as error:
        raise DecodeError(f"TRUNCATE at {position} of {shape.name} is not understood: {error}") from error
    if not isinstance(message, Truncate) or shape.relid not in message.relids:
        raise DecodeError(f"the change log holds another message at {position} as a TRUNCATE of {shape.name}")


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


__all__ = ["NetChange", "changes_after", "last_truncate", "net_change"]
