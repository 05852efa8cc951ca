"""The rows of a table that are written anew: those of the files that hold a row which a net change changes, or all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.transaction import RemoveAction

from spark_jobs.delta.commit import time_now
from spark_jobs.delta.data_files import row_groups
from spark_jobs.delta.table import table_errors
from spark_jobs.writers.held_rows import every_row, row_groups_of_file, rows_of_file
from spark_jobs.writers.opened_table import OpenedTable
from spark_jobs.writers.rewritten_rows import RowChange, RowPiece


@dataclass(frozen=True)
class TouchedFiles:
    """``pieces``: all rows of the files in the table's columns, which are read when they are written. ``counted``: see
    ``RowChange.added``. ``removals``: remove the files from the table."""

    pieces: tuple[RowPiece, ...] = ()
    counted: pa.Table | None = None
    removals: tuple[RemoveAction, ...] = ()


def touched_files(opened: OpenedTable, change: RowChange, most: int) -> TouchedFiles | None:
    """Those of the version that is opened; all of them ``can_be_removed``. None if the rows that are ``counted`` take
    more than ``most`` bytes in memory. Raises LakeError."""
    net = change.net
    pieces, removals = list[RowPiece](), list[RemoveAction]()
    counted = [pa.schema(opened.schema).empty_table()]
    for name, size in _files(opened.files_in_range(net.columns.shape, net.touched_range)):
        of_file = _pieces(opened, name, size)
        if net.columns.shape.has_key:
            is_touched = net.ended is not None or _has_key(opened, name, size, change)
        else:
            found = _counted(of_file, change, most - sum(each.nbytes for each in counted))
            if found is None:
                return None
            counted, is_touched = [*counted, *found], bool(found)
        if is_touched:
            pieces += of_file
            removals.append(RemoveAction(name, True, time_now(), size, {}))
    return TouchedFiles(tuple(pieces), pa.concat_tables(counted), tuple(removals))


def all_files(opened: OpenedTable, change: RowChange, most: int) -> TouchedFiles | None:
    """All of them, for a commit that replaces the whole table. None, and raises, as ``touched_files``."""
    if opened.can_be_removed(opened.files):
        pieces = [piece for name, size in _files(opened.files) for piece in _pieces(opened, name, size)]
    else:  # deltalake knows which of their rows are deleted
        rows = pc.sum(opened.files.column("num_records")).as_py() or 0
        pieces = [RowPiece(rows, partial(_parts, opened, partial(every_row, opened.table)))]
    nothing = pa.schema(opened.schema).empty_table()
    counted = [] if change.net.columns.shape.has_key else _counted(pieces, change, most)
    return None if counted is None else TouchedFiles(tuple(pieces), pa.concat_tables([nothing, *counted]))


def _files(files: pa.Table) -> Iterable[tuple[str, int]]:
    return zip(files.column("path").to_pylist(), files.column("size_bytes").to_pylist(), strict=True)


def _pieces(opened: OpenedTable, name: str, size: int) -> list[RowPiece]:
    with table_errors(f"{opened.path} cannot be read"):
        groups = row_groups_of_file(opened.path, name, size, _in_files(opened, pa.schema(opened.schema).names))
    return [RowPiece(rows, partial(_parts, opened, read)) for rows, read in groups]


def _parts(opened: OpenedTable, read: Callable[[], Iterator[pa.RecordBatch]]) -> Iterator[pa.Table]:
    names = pa.schema(opened.schema).names
    with table_errors(f"{opened.path} cannot be read"):
        for group in row_groups(read()):
            yield pa.Table.from_batches(group).rename_columns(names)


def _has_key(opened: OpenedTable, name: str, size: int, change: RowChange) -> bool:
    keys = change.matched_columns
    with table_errors(f"{opened.path} cannot be read"):
        batches = rows_of_file(opened.path, name, size, _in_files(opened, keys))
        parts = (pa.Table.from_batches([batch]).rename_columns([*keys]) for batch in batches)
        return any(pc.any(change.may_change(part)).as_py() for part in parts)


def _counted(pieces: Iterable[RowPiece], change: RowChange, most: int) -> list[pa.Table] | None:
    """The rows that a table without a key may lose; None if they take more than ``most`` bytes."""
    found, size = list[pa.Table](), 0
    for piece in pieces:
        for part in piece.read():
            going = part.filter(change.may_change(part))
            size += going.nbytes
            if size > most:
                return None
            found += [going] if going.num_rows else []
    return found


def _in_files(opened: OpenedTable, names: Iterable[str]) -> pa.Schema:
    schema = pa.schema(opened.schema)
    return pa.schema([schema.field(name).with_name(opened.physical[name]) for name in names])
