"""The files of a table that hold a row which a net change changes: all their rows are written anew."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from deltalake.transaction import RemoveAction

from spark_jobs.delta.commit import time_now
from spark_jobs.delta.table import table_errors
from spark_jobs.writers.held_rows import rows_of_file
from spark_jobs.writers.net_source import NetSource
from spark_jobs.writers.opened_table import OpenedTable
from spark_jobs.writers.rewritten_rows import may_change


@dataclass(frozen=True)
class TouchedFiles:
    """``rows``: all those of the files, in the table's columns. ``removals``: remove the files from the table."""

    rows: pa.Table
    removals: tuple[RemoveAction, ...] = ()


def touched_files(opened: OpenedTable, net: NetSource, most: int) -> TouchedFiles | None:
    """Those of the version that is opened; all of them ``can_be_removed``. None if their rows take more than
    ``most`` bytes in memory: then not all of them are read. Raises LakeError."""
    schema = pa.schema(opened.schema)
    in_files = pa.schema([field.with_name(opened.physical[field.name]) for field in schema])
    files = opened.files_in_range(net.columns.shape, net.touched_range).select(["path", "size_bytes"])
    found, removals, size = [schema.empty_table()], list[RemoveAction](), 0
    for name, in_file in zip(*files.to_pydict().values(), strict=True):
        batches = list[pa.RecordBatch]()
        with table_errors(f"{opened.path} cannot be read"):
            for batch in rows_of_file(opened.path, name, in_file, in_files):
                batches.append(batch)
                if size + sum(each.nbytes for each in batches) > most:
                    return None
        rows = pa.Table.from_batches(batches, in_files).rename_columns(schema.names)
        if may_change(rows, net):
            size += rows.nbytes
            found.append(rows)
            removals.append(RemoveAction(name, True, time_now(), in_file, {}))
    return TouchedFiles(pa.concat_tables(found), tuple(removals))
