"""What a Delta table holds, read from its transaction log without Spark: columns and number of rows."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from spark_jobs.delta.table import table_errors
from spark_jobs.errors import LakeError
from spark_jobs.storage import Location
from spark_jobs.writers.delta_fields import known_fields, sql_type
from spark_jobs.writers.with_arrow.opened_table import table_to_read


@dataclass(frozen=True)
class DescribedTable:
    """``columns``: names, and types as Spark prints them, in the table's order. ``rows``: without deleted ones."""

    columns: tuple[tuple[str, str], ...]
    rows: int


def described_table(path: Location) -> DescribedTable | None:
    """The newest version of the table at ``path``. None if ``deltalake`` cannot tell all of it: for a path with a
    percent sign, a feature or a type that it does not know, or files without a number of rows."""
    table = table_to_read(path)
    if table is None or (fields := known_fields(table)) is None:
        return None
    try:
        with table_errors(f"{path} cannot be read"):
            rows = _rows(table)
    except LakeError:
        return None
    columns = tuple((field["name"], sql_type(field["type"]) or "") for field in fields)
    return None if rows is None else DescribedTable(columns, rows)


def _rows(table: DeltaTable) -> int | None:
    counts = pa.table(table.get_add_actions(flatten=True)).column("num_records")
    if counts.null_count:
        return None
    deleted = 0
    for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors()):
        kept = batch.column("selection_vector").flatten()
        deleted += len(kept) - (pc.sum(kept).as_py() or 0)
    return (pc.sum(counts).as_py() or 0) - deleted
