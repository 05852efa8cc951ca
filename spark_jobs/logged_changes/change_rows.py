"""One row per change: what happened, when and by whom, and the table's row before and after it.

The names of what describes a change are those of mode ``append``. The values are in two structs of one type, so that
``coalesce(after, before)`` is the row that the change is about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.apply.net_change.net_rules import NetRules
from spark_jobs.apply.net_change.sides import Sides
from spark_jobs.apply.net_change.truncates import truncates_of, truncations, without_truncates
from spark_jobs.decode.columnar import DELETE, INSERT
from spark_jobs.decode.ordered_changes import OrderedChanges
from spark_jobs.schema.mode_columns import CHANGE, COMMIT_LSN, COMMIT_TIME, NOT_SENT, ORDINAL, XID, ModeColumn
from spark_jobs.schema.table_shape import LakeColumn

ORIGIN = ModeColumn("_origin", "origin", pa.string(), "string")
BEFORE, AFTER = "before", "after"
BEFORE_NOT_SENT, AFTER_NOT_SENT = f"_before{NOT_SENT.name}", f"_after{NOT_SENT.name}"

# a column of the change log has the name ``net``
DESCRIBING = (COMMIT_LSN, ORDINAL, COMMIT_TIME, XID, ORIGIN)


@dataclass(frozen=True)
class ChangeColumns:
    """The columns of a table's changes. ``columns``: those of the table."""

    columns: tuple[LakeColumn, ...]

    @property
    def schema(self) -> pa.Schema:
        row = pa.struct([pa.field(column.name, column.lake_type.arrow) for column in self.columns])
        described = ((column.name, column.arrow) for column in (CHANGE, *DESCRIBING))
        sides = ((BEFORE, row), (AFTER, row), (BEFORE_NOT_SENT, NOT_SENT.arrow), (AFTER_NOT_SENT, NOT_SENT.arrow))
        return pa.schema([*described, *sides])

    @property
    def ddl(self) -> str:
        """The same as Spark's DDL."""
        fields = ", ".join(f"{_quoted(column.name)}: {column.lake_type.decoded_sql}" for column in self.columns)
        described = ((column.name, column.sql) for column in (CHANGE, *DESCRIBING))
        row = f"struct<{fields}>"
        sides = ((BEFORE, row), (AFTER, row), (BEFORE_NOT_SENT, NOT_SENT.sql), (AFTER_NOT_SENT, NOT_SENT.sql))
        return ", ".join(f"{_quoted(name)} {sql}" for name, sql in (*described, *sides))


def change_rows(rows: pa.Table, rules: NetRules) -> pa.Table:
    """The changes in total order. ``rows``: change-log rows of kinds I, U, D and T, with the columns ``DESCRIBING``, in
    any order. Raises DecodeError, UnrepresentableError, SchemaChangeError, NeedsSnapshotError."""
    truncates = truncates_of(rows)
    if not len(truncates):
        return _row_changes(rows, rules)
    truncations(rows, rules.shape)  # raises for one that did not empty the table
    schema = ChangeColumns(rules.shape.columns).schema
    columns = {CHANGE.name: pa.array(["truncate"] * len(truncates)), **_described(truncates)}
    empty = [columns.get(field.name, pa.nulls(len(truncates), field.type)) for field in schema]
    emptied = pa.Table.from_arrays(empty, names=schema.names).cast(schema)
    both = pa.concat_tables([_row_changes(without_truncates(rows), rules), emptied])
    return both.sort_by([(COMMIT_LSN.name, "ascending"), (ORDINAL.name, "ascending")])


def _row_changes(rows: pa.Table, rules: NetRules) -> pa.Table:
    ordered = OrderedChanges.of(rows, rules.relations, rules.shape)
    kinds = pa.array(ordered.changes.kinds)
    is_update = pc.if_else(pc.equal(kinds, DELETE), "delete", "update")
    before, before_not_sent = _side(Sides.old(ordered), rules)
    after, after_not_sent = _side(Sides.new(ordered), rules)
    columns = {
        CHANGE.name: pc.if_else(pc.equal(kinds, INSERT), "insert", is_update),
        **_described(rows.take(pa.array(ordered.order)) if (np.diff(ordered.order) != 1).any() else rows),
        BEFORE: before,
        AFTER: after,
        BEFORE_NOT_SENT: before_not_sent,
        AFTER_NOT_SENT: after_not_sent,
    }
    return pa.table(columns).cast(ChangeColumns(rules.shape.columns).schema)


def _described(rows: pa.Table) -> dict[str, pa.ChunkedArray]:
    return {column.name: rows.column(column.net) for column in DESCRIBING}


def _side(sides: Sides, rules: NetRules) -> tuple[pa.Array, pa.Array]:
    """For each change this side as a struct, null if it has none; and the names of the columns that it lacks."""
    columns = rules.shape.columns
    size, row = len(sides.ordered.changes), ChangeColumns(columns).schema.field(BEFORE).type
    if not len(sides.slots):
        return pa.nulls(size, row), pa.nulls(size, NOT_SENT.arrow)
    values = sides.values()
    side = pa.StructArray.from_arrays([column.combine_chunks() for column in values.columns], fields=list(row))
    if len(sides.slots) == size:
        return side, values.not_sent
    places = np.zeros(size, dtype=np.int64)
    places[sides.slots] = np.arange(len(sides.slots))
    has_none = np.ones(size, dtype=bool)
    has_none[sides.slots] = False
    indices = pa.array(places, mask=has_none)
    return side.take(indices), values.not_sent.take(indices)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def in_batches(rows: pa.Table, most: int) -> Sequence[pa.RecordBatch]:
    """Batches of at most ``most`` rows."""
    batches: Sequence[pa.RecordBatch] = rows.combine_chunks().to_batches(max_chunksize=most)
    return batches
