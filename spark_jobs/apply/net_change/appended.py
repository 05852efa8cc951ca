"""Mode ``append``: every change as a row of its own, in the table's types."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.apply.net_change.rows import misfit_columns
from spark_jobs.apply.net_change.sides import Sides
from spark_jobs.decode.columnar import DELETE, INSERT
from spark_jobs.decode.ordered_changes import OrderedChanges
from spark_jobs.schema.mode_columns import CHANGE, COMMIT_LSN, COMMIT_TIME, NOT_SENT, ORDINAL, XID
from spark_jobs.schema.net_columns import NetColumns, arrow_schema, value
from spark_jobs.schema.table_shape import TableShape


def appended_changes(ordered: OrderedChanges, rows: pa.Table) -> pa.Table:
    """One row per change, in total order; an update's old row, if it was sent, comes right before its new one. Misfits
    have columns of their own.

    ``rows``: those that ``ordered`` was made of, with ``commit_time`` and ``xid``. Raises DecodeError,
    UnrepresentableError.
    """
    sides = Sides.in_order(ordered)
    given, values = pa.array(ordered.order[sides.slots]), sides.values()
    named = {value(index): array for index, array in enumerate(values.columns)}
    named |= {
        CHANGE.net: _operations(sides),
        COMMIT_LSN.net: pa.array(ordered.commit_lsns[sides.slots]),
        ORDINAL.net: pa.array(ordered.ordinals[sides.slots]),
        COMMIT_TIME.net: rows.column("commit_time").take(given),
        XID.net: rows.column("xid").take(given),
        NOT_SENT.net: values.not_sent,
    }
    noted = misfit_columns(values.fitted, ordered.commit_lsns[sides.slots])
    appended: pa.Table = pa.table(named).cast(_schema(ordered.shape))
    for name, column in noted.items():
        appended = appended.append_column(name, column)
    return appended


def appended_truncates(truncates: pa.Table, shape: TableShape) -> pa.Table:
    """One row without values per TRUNCATE. ``truncates``: the change log's rows of kind T."""
    schema, size = _schema(shape), len(truncates)
    named = {
        CHANGE.net: pa.array(["truncate"] * size, pa.string()),
        **{column.net: truncates.column(column.net) for column in (COMMIT_LSN, ORDINAL, COMMIT_TIME, XID)},
    }
    arrays = [named[field.name] if field.name in named else pa.nulls(size, field.type) for field in schema]
    return pa.Table.from_arrays(arrays, names=schema.names).cast(schema)


def _operations(sides: Sides) -> pa.Array:
    kinds = sides.ordered.changes.kinds[sides.slots]
    updates = pc.if_else(pa.array(sides.is_old), "update_before", "update")
    return pc.if_else(pa.array(kinds == INSERT), "insert", pc.if_else(pa.array(kinds == DELETE), "delete", updates))


def _schema(shape: TableShape) -> pa.Schema:
    return arrow_schema(NetColumns(shape, mode="append").fields)
