"""Old files of a table of numbered rows: dropped behind a number, put together in larger ones, removed from storage.

Each step is a commit of its own that changes no row that is kept, and may be repeated after any crash. Its transaction
identifier counts them, and it goes through the handle that the files were read with: of two processes that do this at
once, one commits. An append in between hinders neither. Files keep the time at which their rows were appended, so that
their age is that of the rows; so rows of one period come together, and never those of several.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain, takewhile

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import PostCommitHookProperties, RemoveAction

from spark_jobs.delta.append import FILE_BYTES, DataFiles, Layout, row_groups
from spark_jobs.delta.counted_files import CountedFiles, DataFile
from spark_jobs.delta.files import WRITABLE, table_filesystem
from spark_jobs.delta.table import open_table, table_errors
from spark_jobs.errors import LakeError, OvertakenError

_APP_ID = "pgcdc:maintenance"
_MILLISECONDS = 1000
_DAY = 24 * 3600 * _MILLISECONDS
# readers may be at a file that is no longer part of the table, and writers at one that is none yet
KEPT_FOR_READERS = timedelta(days=1)
_SMALL_BYTES = FILE_BYTES // 2


@dataclass(frozen=True)
class Upkeep:
    """``files_before`` and ``files_after`` are part of the table; ``deleted`` were removed from storage. ``overdue``:
    rows have expired, and are kept because they are needed."""

    files_before: int
    files_after: int
    bytes_after: int
    deleted: int
    overdue: bool = False


@dataclass(frozen=True)
class CountedTable:
    """``files`` with what is needed to write them. ``apart``: rows that are often read alone, and get row groups of
    their own. ``by_day``: rows of several days stay in several files."""

    files: CountedFiles
    layout: Layout
    by_day: bool = True
    apart: pc.Expression | None = None


@dataclass(frozen=True)
class Expiry:
    """Rows appended longer ago than ``age`` go, up to the number ``needed``, which stays, and but for those that
    ``keep`` names."""

    age: timedelta
    needed: int
    keep: pc.Expression | None = None


def keep_small(table: CountedTable, properties: Mapping[str, str], expiry: Expiry | None, readers: timedelta) -> Upkeep:
    """Drop what has expired, put small files together, clean up Delta's own log, and remove from storage what no
    version of the last ``readers`` has. ``properties`` are the table's from now on.

    Raises LakeError; OvertakenError when another process does the same.
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


def _first_younger(files: Sequence[DataFile], column: str, age: timedelta) -> int | None:
    """The number behind the oldest files whose rows were all appended longer ago than ``age``; None: there are none.

    ``files`` in the order of their numbers.
    """
    until = time.time() * _MILLISECONDS - age.total_seconds() * _MILLISECONDS
    old = takewhile(lambda file: file.modified < until and file.greatest.get(column) is not None, files)
    return max((file.greatest[column] + 1 for file in old), default=None)


def _drop_before(table: CountedTable, number: int, keep: pc.Expression | None) -> None:
    """Files all of whose rows have lower numbers are no longer part of the table; the rows ``keep`` in them stay."""
    handle = _opened(table.files.path)
    dropped = [file for file in table.files.all(handle) if _is_before(file, table.files.column, number)]
    if dropped:
        rows = iter(()) if keep is None else _rows(table, dropped, keep)
        _replace(table, handle, dropped, rows, is_loss=True)


def _put_together(table: CountedTable) -> None:
    """Small files of one period become one."""
    periods = {_period(table, file) for file in table.files.all()}
    for period in sorted(periods):
        handle = _opened(table.files.path)
        of_period = (file for file in table.files.all(handle) if _period(table, file) == period)
        small = [file for file in of_period if file.size < _SMALL_BYTES]
        if len(small) > 1:
            _replace(table, handle, small, _ordered(table, small), is_loss=False)


def _tidy(path: str, keep: timedelta) -> int:
    """Delta's own log in short, and no file in storage that no version of the last ``keep`` has; how many went."""
    table = _opened(path)
    if table.version():  # a checkpoint of the version that made the table would say nothing
        table.create_checkpoint()
    table.cleanup_metadata()
    hours = int(keep.total_seconds() // 3600)
    return len(table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True))


def _set_properties(path: str, wanted: Mapping[str, str]) -> None:
    """Those of the table that are others, in one commit."""
    table = _opened(path)
    known = table.metadata().configuration
    others = {name: value for name, value in wanted.items() if known.get(name) != value}
    if others:
        table.alter.set_table_properties(others)


def _replace(
    table: CountedTable, handle: DeltaTable, old: Sequence[DataFile], rows: Iterator[pa.RecordBatch], *, is_loss: bool
) -> None:
    """``old`` files by one or more with ``rows``, in one commit on the version of ``handle``."""
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
    now = int(time.time() * _MILLISECONDS)
    removed = [RemoveAction(file.path, is_loss, now, file.size, {}) for file in old]
    try:
        handle.create_write_transaction(
            [*new.actions, *removed],
            "append",
            table.layout.schema,
            commit_properties=CommitProperties(app_transactions=[Transaction(_APP_ID, number)]),
            post_commithook_properties=PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False),
        )
    except CommitFailedError as error:
        raise OvertakenError(f"another process maintains {path}", hint="run it again") from error


def _opened(path: str) -> DeltaTable:
    table = open_table(path, path)
    if table is None:
        raise LakeError(f"there is no Delta table at {path} any more", hint="run it again")
    return table


def _ordered(table: CountedTable, files: Sequence[DataFile]) -> Iterator[pa.RecordBatch]:
    """What is read alone last: then only the last row groups are read for it."""
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
