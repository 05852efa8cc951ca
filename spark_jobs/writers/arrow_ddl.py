"""DDL that a Delta table follows without Spark where existing rows get a value or another type: a small table is
written anew. See ``column_ddl`` for what each change is; where rows stay as they are, ``table_metadata`` follows it."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.decode.char_output import as_printed_since_15
from spark_jobs.decode.values import Fitted, cast_text
from spark_jobs.schema.mode_columns import ended_column
from spark_jobs.schema.relation_facts import NOT_UTF_8
from spark_jobs.schema.table_shape import LakeColumn, TableShape
from spark_jobs.table_mode import Mode, holds_changes
from spark_jobs.write_limits import WriteLimits
from spark_jobs.writers.opened_table import OpenedTable
from spark_jobs.writers.table_commit import Provenance
from spark_jobs.writers.whole_table import WholeTable


def rewrite_columns_here(
    opened: OpenedTable, shape: TableShape, provenance: Provenance, limits: WriteLimits
) -> int | None:
    """Write all rows with the columns of ``shape``, the table as it is written, in one numbered commit: see
    ``column_ddl.rewrite_columns``. Returns the Delta version; None if Spark has to do it. Raises OvertakenError, and
    LakeError."""
    target = WholeTable.of(opened.path, shape, provenance)
    rows = None if target is None or target.before is None else target.held(limits)
    if target is None or rows is None:
        return None
    attnums = {column.attnum for column in opened.columns}
    for place, column in enumerate(shape.columns):
        if column.attnum not in attnums and column.missing is not None:
            rows = rows.set_column(place, rows.schema.field(place), _filled(rows, column, shape, target.mode))
    target = replace(target, keeps="some")
    written = target.written(rows)
    return target.commit(written.actions, written.rows, provenance)


def _filled(rows: pa.Table, column: LakeColumn, shape: TableShape, mode: Mode) -> pa.Array | pa.ChunkedArray:
    """The column's missing value in the rows that the source has, cast as changes are."""
    (missing,) = missing_value(column, shape).values
    nothing = pa.nulls(rows.num_rows, column.lake_type.arrow)
    if holds_changes(mode):
        return nothing
    ended = ended_column(mode)
    if ended is None:
        return pa.repeat(missing, rows.num_rows)
    # of lists there is no conditional choice, so the places are chosen
    values = pa.concat_arrays([pa.nulls(1, nothing.type), pa.repeat(missing, 1).cast(nothing.type)])
    return values.take(pc.is_null(rows.column(ended.name)).cast(pa.int8()))


def missing_value(column: LakeColumn, shape: TableShape) -> Fitted:
    """The value of rows that are older than the column, cast as changes are. Raises UnrepresentableError."""
    assert column.missing is not None
    text = pa.array([column.missing.encode(errors=NOT_UTF_8)], pa.binary())
    return cast_text(
        as_printed_since_15(text, column.binary_type),
        column.lake_type,
        name=column.name,
        table=str(shape.name),
        on_unrepresentable=column.on_unrepresentable,
    )
