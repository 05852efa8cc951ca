"""DDL that a Delta table follows without Spark: by its metadata alone, or, where existing rows get a value or another
type, a small table is written anew. See ``column_ddl`` for what each change is."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.decode.values import missing_value
from spark_jobs.options.table_mode import Mode, holds_changes
from spark_jobs.options.write_limits import WriteLimits
from spark_jobs.schema.column_changes import ColumnChanges
from spark_jobs.schema.mode_columns import ended_column
from spark_jobs.schema.table_shape import LakeColumn, TableShape
from spark_jobs.writers.table_commit import Provenance
from spark_jobs.writers.with_arrow.opened_table import OpenedTable
from spark_jobs.writers.with_arrow.table_metadata import columns_altered, commit_metadata
from spark_jobs.writers.with_arrow.whole_table import WholeTable


@dataclass(frozen=True)
class ArrowDdl:
    """DDL on a table at the version at which it was opened. See ``follow_columns.ColumnDdl``."""

    opened: OpenedTable
    limits: WriteLimits

    def alter(self, changes: ColumnChanges) -> bool:
        change = columns_altered(self.opened, changes)
        if change is not None:
            commit_metadata(self.opened, change)
        return change is not None

    def rewrite(self, shape: TableShape, provenance: Provenance) -> int | None:
        shape = shape.with_commit_columns(provenance.generation.commit_columns)
        target = WholeTable.of(self.opened.path, shape, provenance)
        rows = None if target is None or target.before is None else target.all_rows(self.limits)
        if target is None or rows is None:
            return None
        attnums = {column.attnum for column in self.opened.columns}
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
