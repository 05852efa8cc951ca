"""What a Delta table holds, read from its transaction log without Spark: columns and number of rows."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from spark_jobs.delta.table import is_ambiguous, open_table, table_errors
from spark_jobs.errors import LakeError
from spark_jobs.storage import Location
from spark_jobs.writers.opened_table import SPARK_NAMES


@dataclass(frozen=True)
class DescribedTable:
    """``columns``: names, and types as Spark prints them, in the table's order. ``rows``: without deleted ones."""

    columns: tuple[tuple[str, str], ...]
    rows: int


def described_table(path: Location) -> DescribedTable | None:
    """The newest version of the table at ``path``. None if ``deltalake`` cannot tell all of it: for a path with a
    percent sign, a feature that it does not know, or files without a number of rows."""
    if is_ambiguous(path):
        return None
    try:
        table = open_table(path, path)
        if table is None:
            return None
        with table_errors(f"{path} cannot be read"):
            rows = _rows(table)
            fields = json.loads(table.schema().to_json())["fields"]
    except LakeError:
        return None
    columns = tuple((field["name"], _spark_type(field["type"])) for field in fields)
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


def _spark_type(delta_type: Any) -> str:
    if isinstance(delta_type, str):
        return SPARK_NAMES.get(delta_type, delta_type)
    return f"array<{_spark_type(delta_type['elementType'])}>"  # the only nested type that we create
