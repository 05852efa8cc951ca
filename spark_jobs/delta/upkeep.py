"""Maintain a table of numbered rows: drop expired rows, compact small files, remove old files from storage. A part of
the compaction also happens in passing, while rows are appended.

Each step is a commit of its own that changes no row that is kept, and may be repeated after any crash. These commits
are counted in a transaction identifier and made through the handle that the files were read with: of two processes that
do this at once, one commits. A concurrent append disturbs neither. Files keep the time at which their rows were
appended, so that a file's age is that of its rows. That is why only files of the same period are compacted together.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain, takewhile

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.transaction import RemoveAction

from spark_jobs.delta.append import commit_files
from spark_jobs.delta.commit import Transaction, time_now
from spark_jobs.delta.commit_errors import commit_errors
from spark_jobs.delta.counted_files import CountedFiles, DataFile
from spark_jobs.delta.data_files import FILE_BYTES, DataFiles, Layout, row_groups
from spark_jobs.delta.files import WRITABLE, table_filesystem
from spark_jobs.delta.table import open_table, table_errors
from spark_jobs.delta.written_tables import commit_properties
from spark_jobs.errors import LakeError, OvertakenError
from spark_jobs.storage import Location

_log = logging.getLogger(__name__)

_APP_ID = "pgcdc:maintenance"
_MILLISECONDS = 1000
_DAY = 24 * 3600 * _MILLISECONDS
# readers may still use a file that is no longer part of the table, writers may write one that is not yet part of it
KEPT_FOR_READERS = timedelta(days=1)
_SMALL_BYTES = FILE_BYTES // 2
# how often, in appends, the newest files are compacted in passing, and which: together they are at most a gigabyte
_IN_PASSING_EVERY = 1000
_TINY_BYTES = 1 << 20


@dataclass(frozen=True)
class Upkeep:
    """``files_before`` and ``files_after``: how many files the table had and has. ``bytes_after``: the size of the
    latter. ``deleted``: how many files were removed from storage. ``overdue``: some rows have expired, but are kept
    because they are needed."""

    files_before: int
    files_after: int
    bytes_after: int
    deleted: int
    overdue: bool = False


@dataclass(frozen=True)
class CountedTable:
    """``files``, and how to write them. ``apart``: rows that are often read alone, and so get row groups of their own.
    ``by_day``: rows of different days are kept in different files."""

    files: CountedFiles
    layout: Layout
    by_day: bool = True
    apart: pc.Expression | None = None


@dataclass(frozen=True)
class Expiry:
    """Rows appended longer ago than ``age`` expire. Rows from the number ``needed`` on are kept, and so are rows that
    meet ``keep``."""

    age: timedelta
    needed: int
    keep: pc.Expression | None = None


def keep_small(table: CountedTable, properties: Mapping[str, str], expiry: Expiry | None, readers: timedelta) -> Upkeep:
    """Set the table's ``properties``, drop expired rows, compact small files, clean up Delta's log, and remove files
    that no version of the last ``readers`` has from storage.

    Raises LakeError; OvertakenError when another process maintains the table too.
    """
    path = table.files.path
    with table_errors(f"{path} cannot be maintained", hint=WRITABLE):
        _set_properties(path, properties)
        before = table.files.all()
        expired = _first_younger(before, table.files.column, expiry.age) if expiry else None
        if expiry and expired is not None:
            _drop_before(table, min(expired, expiry.needed), expiry.keep)
        _put_together(table)
        deleted = _tidy(path, readers)
        after = table.files.all()
    overdue = expired is not None and expiry is not None and expiry.needed < expired
    return Upkeep(len(before), len(after), sum(file.size for file in after), deleted, overdue)


def compact_in_passing(table: CountedTable, number: int) -> None:
    """To be called after the append of ``number``: after every thousandth, compacts the tiny files of the last ones.

    ``deltalake`` reads the list of all files with each append. Without this, that list would grow by a file with each
    append for as long as nobody runs ``postgres-cdc maintain``. A failure is only logged: the append is done, and
    ``maintain`` compacts what is left.
    """
    if number % _IN_PASSING_EVERY:
        return
    path = table.files.path
    try:
        with table_errors(f"{path} cannot be compacted", hint=WRITABLE):
            # twice as many as are new: the last time may have failed
            _put_together(table, after=number - 2 * _IN_PASSING_EVERY, below=_TINY_BYTES)
    except LakeError as error:
        _log.warning("%s", error)


def _first_younger(files: Sequence[DataFile], column: str, age: timedelta) -> int | None:
    """The first number after the oldest files, those whose rows were all appended longer ago than ``age``; None if
    there are none. ``files`` are in the order of their numbers.
    """
    until = time_now() - age.total_seconds() * _MILLISECONDS
    old = takewhile(lambda file: file.modified < until and file.greatest.get(column) is not None, files)
    return max((file.greatest[column] + 1 for file in old), default=None)


def _drop_before(table: CountedTable, number: int, keep: pc.Expression | None) -> None:
    """Drop files all of whose rows have numbers below ``number``, except for the rows in them that meet ``keep``."""
    handle = _opened(table.files.path)
    dropped = [file for file in table.files.all(handle) if _is_before(file, table.files.column, number)]
    if dropped:
        rows = iter(()) if keep is None else _rows(table, dropped, keep)
        _replace(table, handle, dropped, rows, is_loss=True)


def _put_together(table: CountedTable, *, after: int | None = None, below: int = _SMALL_BYTES) -> None:
    """Replace the files of each period that are smaller than ``below`` bytes by larger ones; only those with numbers
    greater than ``after``."""

    def is_meant(file: DataFile) -> bool:
        last = file.greatest.get(table.files.column)
        return file.size < below and (after is None or (last is not None and last > after))

    periods = {_period(table, file) for file in table.files.all() if is_meant(file)}
    for period in sorted(periods):
        handle = _opened(table.files.path)
        small = [file for file in table.files.all(handle) if _period(table, file) == period and is_meant(file)]
        if len(small) > 1:
            _replace(table, handle, small, _ordered(table, small), is_loss=False)


def _tidy(path: Location, keep: timedelta) -> int:
    """Write a checkpoint, clean up Delta's log, and remove files that no version of the last ``keep`` has. Returns the
    number of files removed."""
    table = _opened(path)
    if table.version():  # version 0 only created the table: a checkpoint of it is useless
        table.create_checkpoint()
    table.cleanup_metadata()
    hours = int(keep.total_seconds() // 3600)
    return len(table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True))


def _set_properties(path: Location, wanted: Mapping[str, str]) -> None:
    """Set the properties that differ, in one commit."""
    table = _opened(path)
    known = table.metadata().configuration
    others = {name: value for name, value in wanted.items() if known.get(name) != value}
    if others:
        table.alter.set_table_properties(others)


def _replace(
    table: CountedTable, handle: DeltaTable, old: Sequence[DataFile], rows: Iterator[pa.RecordBatch], *, is_loss: bool
) -> None:
    """Replace ``old`` files by new ones that hold ``rows``, in one commit on the version of ``handle``."""
    path, modified = table.files.path, max(file.modified for file in old)
    new = DataFiles(table_filesystem(path), path, table.layout, modified)
    number = (handle.transaction_version(_APP_ID) or 0) + 1
    try:
        for group in row_groups(rows):
            new.write(pa.Table.from_batches(group, table.layout.schema))
        new.close()
    except BaseException:
        new.remove()
        raise
    now = time_now()
    removed = [RemoveAction(file.path, is_loss, now, file.size, {}) for file in old]
    with commit_errors(path, OvertakenError(f"another process maintains {path}", hint="run it again")):
        commit = commit_properties(Transaction(_APP_ID, number))
        commit_files(handle, [*new.actions, *removed], "append", table.layout.schema, commit)


def _opened(path: Location) -> DeltaTable:
    table = open_table(path, path)
    if table is None:
        raise LakeError(f"there is no Delta table at {path} any more", hint="run it again")
    return table


def _ordered(table: CountedTable, files: Sequence[DataFile]) -> Iterator[pa.RecordBatch]:
    """The files' rows, those that are often read alone last: a query for these then reads only the last row groups."""
    if table.apart is None:
        return _rows(table, files, None)
    return chain(_rows(table, files, ~table.apart), _rows(table, files, table.apart))


def _rows(table: CountedTable, files: Sequence[DataFile], condition: pc.Expression | None) -> Iterator[pa.RecordBatch]:
    dataset = table.files.dataset(files)
    return iter(dataset.to_batches(filter=condition, batch_readahead=1, fragment_readahead=4))


def _is_before(file: DataFile, column: str, number: int) -> bool:
    last = file.greatest.get(column)
    return last is not None and last < number


def _period(table: CountedTable, file: DataFile) -> int:
    return file.modified // _DAY if table.by_day else 0
