"""The rows of a table that are written anew: those of the files that hold a row which a net change changes, or all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake.transaction import RemoveAction

from spark_jobs.delta.commit import time_now
from spark_jobs.delta.data_files import row_groups
from spark_jobs.delta.table import table_errors
from spark_jobs.writers.net_source import NetSource
from spark_jobs.writers.with_arrow.opened_table import OpenedTable
from spark_jobs.writers.with_arrow.rewritten_rows import RowChange, RowPiece
from spark_jobs.writers.with_arrow.rows_of_table import data_file, every_row, rows_of_part

# of files, so few that to read all of their columns costs less than to open them once more
_IN_MEMORY_BYTES = 256 << 10


@dataclass(frozen=True)
class TouchedFiles:
    """``pieces``: all rows of the files in the table's columns, which are read when they are written. ``removals``:
    remove the files from the table."""

    pieces: tuple[RowPiece, ...] = ()
    removals: tuple[RemoveAction, ...] = ()


def touched_files(opened: OpenedTable, change: RowChange, net: NetSource) -> TouchedFiles:
    """Those of the version that is opened; all of them ``can_be_removed``. Raises LakeError."""
    pieces, removals, in_memory = list[RowPiece](), list[RemoveAction](), 0
    for name, size in _files(opened.files_in_range(net.columns.shape, net.touched_range)):
        file = data_file(opened.path, name, size)
        found, parts = _pieces(opened, file), _parts(opened, change.matched_columns, file)
        in_memory += size
        if in_memory <= _IN_MEMORY_BYTES:
            found = [piece.in_memory() for piece in found]
            parts = chain.from_iterable(piece.read() for piece in found)
        if change.touches(parts):
            pieces += found
            removals.append(RemoveAction(name, True, time_now(), size, {}))
    return TouchedFiles(tuple(pieces), tuple(removals))


def all_files(opened: OpenedTable, change: RowChange) -> TouchedFiles:
    """All of them, for a commit that replaces the whole table. Raises as ``touched_files``."""
    if opened.can_be_removed(opened.files):
        files = (data_file(opened.path, name, size) for name, size in _files(opened.files))
        pieces = [piece for file in files for piece in _pieces(opened, file)]
    else:  # deltalake knows which of their rows are deleted
        rows = pc.sum(opened.files.column("num_records")).as_py() or 0
        pieces = [RowPiece(rows, lambda: _grouped(opened, every_row(opened.table), pa.schema(opened.schema).names))]
    if change.looks_ahead:
        change.touches(part for piece in pieces for part in piece.read())
    return TouchedFiles(tuple(pieces))


def _files(files: pa.Table) -> Iterable[tuple[str, int]]:
    return zip(files.column("path").to_pylist(), files.column("size_bytes").to_pylist(), strict=True)


def _pieces(opened: OpenedTable, file: ds.ParquetFileFragment) -> list[RowPiece]:
    """Of each row group of the file."""
    with table_errors(f"{opened.path} cannot be read"):
        groups = file.split_by_row_group()
    read = partial(_parts, opened, pa.schema(opened.schema).names)
    return [RowPiece(sum(each.num_rows for each in group.row_groups), partial(read, group)) for group in groups]


def _parts(opened: OpenedTable, names: Sequence[str], part: ds.ParquetFileFragment) -> Iterator[pa.Table]:
    """The rows of a file or of a row group, in the table's columns with these ``names``."""
    schema = pa.schema(opened.schema)
    in_files = pa.schema([schema.field(name).with_name(opened.physical[name]) for name in names])
    return _grouped(opened, rows_of_part(part, in_files), names)


def _grouped(opened: OpenedTable, batches: Iterator[pa.RecordBatch], names: Sequence[str]) -> Iterator[pa.Table]:
    with table_errors(f"{opened.path} cannot be read"):
        for group in row_groups(batches):
            yield pa.Table.from_batches(group).rename_columns([*names])
