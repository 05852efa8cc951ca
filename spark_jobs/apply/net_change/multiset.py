"""The net change of a table without a key: how many copies of each row are added and removed.

REPLICA IDENTITY FULL sends the old row whole: a delete removes one row that is equal in all columns, an update replaces
one, and it makes no difference which of several equal rows that is. So the order of changes does not matter: a sum per
row is enough. With commit columns rows are equal if their other columns are, and the oldest goes. The order does not
matter then either, as an added row is newer than those that are there. But only the table tells which rows go: so the
copies that each commit adds are not summed with those that go, which name no commit.
https://www.postgresql.org/docs/current/sql-altertable.html#SQL-ALTERTABLE-REPLICA-IDENTITY
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.apply.net_change.actions import Spans
from spark_jobs.apply.net_change.moments import Moments
from spark_jobs.apply.net_change.rows import misfit_columns, typed_values
from spark_jobs.decode.columnar import DELETE, INSERT
from spark_jobs.decode.equal_rows import EqualRows, comparable_rows
from spark_jobs.decode.ordered_changes import OrderedChanges
from spark_jobs.decode.threads import in_threads
from spark_jobs.decode.tuple_vectors import UNCHANGED
from spark_jobs.decode.values import Fitted
from spark_jobs.errors import NeedsSnapshotError, new_snapshot
from spark_jobs.schema.net_columns import COPIES, NetColumns, arrow_schema
from spark_jobs.schema.table_faults import whole_rows_sql
from spark_jobs.schema.table_shape import TableShape

_SET = "set"


def net_copies(ordered: OrderedChanges, written: TableShape, moments: Moments) -> pa.Table:
    """``COPIES`` and the values of ``written``, for each row whose number of copies changes. ``moments``: of changes.

    Rows are equal if PostgreSQL prints them alike: NaN is NaN, 0 is not -0. Raises NeedsSnapshotError where a change
    came without its old row, and what casting raises.
    """
    changes, shape = ordered.changes, ordered.shape
    added = np.flatnonzero(changes.kinds != DELETE)
    removed = np.flatnonzero(changes.kinds != INSERT)
    _require_old_rows(ordered, removed)

    def column(index: int) -> Fitted:
        old = Spans.of(*changes.spans(index, removed, np.ones(len(removed), dtype=bool)))
        # each by itself: only the values of one side lie one after the other in the messages
        sides = [typed_values(ordered, index, side) for side in (_new_spans(ordered, index, added), old)]
        return Fitted.joined(sides, shape.columns[index].lake_type.arrow)

    values = in_threads(column, range(len(shape.columns)), len(changes))
    copies = np.repeat(np.array([1, -1], dtype=np.int64), [len(added), len(removed)])
    commits = moments.take(added).then(Moments.never(len(removed))).values(written)
    columns = [pa.array(copies), *(each.values for each in values), *commits.values()]
    rows = pa.table(columns, schema=arrow_schema(NetColumns(written).fields))
    # rows that are removed note nothing
    lsns, is_added = ordered.commit_lsns[np.concatenate([added, removed])], pa.array(copies > 0)
    noted = misfit_columns(values, lsns)
    for name, array in noted.items():
        rows = rows.append_column(name, pc.if_else(is_added, array, pa.scalar(None, array.type)))
    return summed(rows, tuple(noted))


def summed(rows: pa.Table, noted: tuple[str, ...] = ()) -> pa.Table:
    """One row for each set of equal rows, with the sum of their copies; in the order of their first
    rows; sums of 0 are left out. ``noted``: columns that make no row another one."""
    names = [name for name in rows.column_names if name not in (COPIES.name, *noted)]
    equal = EqualRows.of(comparable_rows(rows.select(names)))
    sums, copies = np.zeros(len(equal.firsts), dtype=np.int64), np.zeros(rows.num_rows, dtype=np.int64)
    np.add.at(sums, equal.sets, rows.column(COPIES.name).to_numpy())
    copies[equal.firsts] = sums
    columns = {COPIES.name: pa.array(copies)}
    if noted:
        greatest = rows.select(noted).append_column(_SET, pa.array(equal.sets)).group_by(_SET)
        of_sets = greatest.aggregate([(name, "max") for name in noted]).sort_by(_SET)
        columns |= {name: of_sets.column(f"{name}_max").take(pa.array(equal.sets)) for name in noted}
    for name, values in columns.items():
        rows = rows.set_column(rows.column_names.index(name), rows.schema.field(name), values)
    return rows.filter(pa.array(copies != 0))


def _require_old_rows(ordered: OrderedChanges, removed: np.ndarray) -> None:
    whole = ordered.has_whole_old_row[removed]
    if whole.all():
        return
    shape, at = ordered.shape, ordered.position(int(removed[np.argmin(whole)]))
    raise NeedsSnapshotError(
        f"the change of {shape.name} at {at} arrived without its old row, and the table has no key",
        hint=f"{whole_rows_sql(shape.relation, partitioned=bool(shape.leaf_identities))}; {new_snapshot(shape.name)}",
    )


def _new_spans(ordered: OrderedChanges, index: int, slots: np.ndarray) -> Spans:
    """An unchanged value that is stored out of line is taken from the old row."""
    changes = ordered.changes
    unchanged = changes.new.kinds[index, slots] == UNCHANGED
    # an update that moves a row into the row filter is sent as an insert
    unknown = unchanged & ~changes.in_old(index)[slots]
    if unknown.any():
        at = ordered.position(int(slots[np.argmax(unknown)]))
        raise NeedsSnapshotError(
            f"the row that enters {ordered.shape.name} at {at} arrived without the value of column"
            f" {ordered.shape.columns[index].name}",
            hint=new_snapshot(ordered.shape.name),
        )
    return Spans.of(*changes.spans(index, slots, unchanged))
