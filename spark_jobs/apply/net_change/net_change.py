"""Changes of one table in a range → one row per key: its last state, ready to be written. For a table without a key,
see ``multiset``; the rules below are those of mode ``mirror``.

A pure function of the change-log rows, taken in the order of (commit LSN, ordinal). A key change is a delete of the old
key and an insert of the new one. An unchanged TOAST value comes from the last change that has it, else from the table's
row under the key that the chain of changes started from. A TRUNCATE voids everything before it. A key that exists
neither before nor after the range leaves no row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.apply.net_change.appended import appended_truncates
from spark_jobs.apply.net_change.net_rules import NetRules
from spark_jobs.apply.net_change.truncates import truncates_of, truncations
from spark_jobs.change_log.change_counts import ChangeCounts
from spark_jobs.change_log.schema import RowKind
from spark_jobs.decode.ordered_changes import plain_columns
from spark_jobs.errors import DecodeError
from spark_jobs.options.table_mode import holds_changes
from spark_jobs.schema.misfits import NO_MISFITS, Misfits
from spark_jobs.schema.moment import Moment
from spark_jobs.schema.net_columns import COPIES, NetColumns
from spark_jobs.schema.table_shape import TableShape


@dataclass(frozen=True)
class NetChange:
    """What to write to one table for one range of the change log.

    ``rows`` of ``columns``, one per key; a delete has only the values of the key's columns. For a table without a key,
    one for each row that is added or removed. ``truncated``: the table is emptied before the rows are written.
    ``insert_only``: every row is an upsert of a key that the table lacks; for a table without a key, no row is removed.
    ``changes``: all changes seen, including those that a TRUNCATE voided. ``ended``: see ``NetRules``.
    ``misfits``: of these rows.
    """

    columns: NetColumns
    rows: pa.Table
    truncated: bool
    insert_only: bool
    changes: ChangeCounts
    ended: Moment | None = None
    misfits: Misfits = NO_MISFITS


def net_change(rows: pa.Table, rules: NetRules) -> NetChange:
    """``rows``: change-log rows of one table, kinds I, U, D and T, in any order. ``rules``: their TRUNCATEs need not be
    among them.

    Raises DecodeError, UnrepresentableError, NeedsSnapshotError; all name the table and the position or range.
    """
    rows, shape, mode = plain_columns(rows), rules.shape, rules.mode
    counts = _counts(rows, shape)
    rules = replace(rules, truncates=truncations(rows, shape) if counts.truncates else ())
    changes = rules.counting(rows)
    if rules.nets_by_key:
        net = rules.rows_by_key(changes)
        columns, table = net.columns, net.rows
        insert_only = rules.only_inserts(are_fresh=bool(net.fresh.all()))
    else:
        columns, table = NetColumns(rules.written, mode=mode), rules.rows_of_changes(changes)
        if holds_changes(mode):
            emptied = appended_truncates(truncates_of(rows), shape)
            table, insert_only = pa.concat_tables([table, emptied], promote_options="default"), True
        else:
            insert_only = not pc.any(pc.less(table.column(COPIES.name), 0)).as_py()
    written, misfits = table.select([field.name for field in columns.fields]), Misfits.of(table, columns.shape)
    return NetChange(columns, written, rules.truncated, insert_only, counts, rules.ended, misfits)


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
