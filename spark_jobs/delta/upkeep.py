"""Maintain a table of numbered rows: drop expired rows, compact small files, remove old files from storage. A part of
the compaction also happens in passing, while rows are appended.

Each step is a commit of its own that changes no row that is kept, and may be repeated after any crash. It is made only
while the files that it replaces are part of the table: of two processes that do this at once, one commits. A concurrent
append disturbs neither. Files keep the time at which their rows were
appended, so that a file's age is that of its rows. That is why only files of the same period are compacted together.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import takewhile
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.delta.checkpoints import shorten_log
from spark_jobs.delta.commit import time_now
from spark_jobs.delta.counted_files import CountedFiles, DataFile
from spark_jobs.delta.data_files import FILE_BYTES, DataFiles, Layout
from spark_jobs.delta.files import WRITABLE, LakeFile
from spark_jobs.delta.history import History
from spark_jobs.delta.listed_table import ListedTable
from spark_jobs.delta.table import table_errors
from spark_jobs.delta.whole_files import delete_files
from spark_jobs.errors import LakeError, OvertakenError

_log = logging.getLogger(__name__)

_MILLISECONDS = 1000
_DAY = 24 * 3600 * _MILLISECONDS
_SMALL_BYTES = FILE_BYTES // 2
# how often, in appends, the newest files are compacted in passing, and which: together they are at most a gigabyte
_IN_PASSING_EVERY = 1000
_TINY_BYTES = 1 << 20
# what a writer has not finished by then it never will
_UNFINISHED = 3600 * _MILLISECONDS

# for each row whether it is meant
Chosen: TypeAlias = Callable[[pa.RecordBatch], pa.Array]


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
    meet ``keep``. ``needed`` is None for rows that have no numbers."""

    age: timedelta
    needed: int | None = None
    keep: pc.Expression | None = None


def keep_small(table: CountedTable, properties: Mapping[str, str], expiry: Expiry | None, history: History) -> Upkeep:
    """Set the table's ``properties``, drop expired rows, compact small files, and remove from the storage what the
    table's ``history`` does not need.

    Raises LakeError; OvertakenError when another process maintains the table too.
    """
    path = table.files.path
    with table_errors(f"{path} cannot be maintained", hint=WRITABLE):
        listed = ListedTable.required(path).with_properties(properties)
        before = table.files.added(listed.files.values())
        expired, dropped = _expired(table, before, expiry) if expiry else ([], [])
        if expiry and dropped:
            left = iter(()) if expiry.keep is None else _rows(table, dropped, expiry.keep)
            listed = _replace(table, listed, dropped, left, is_loss=True)
        listed = _put_together(table, listed)
        shorten_log(path, listed.version - listed.checkpoint)
        deleted = listed.remove_expired(history)
        after = table.files.added(listed.files.values())
    return Upkeep(len(before), len(after), sum(file.size for file in after), deleted, len(dropped) < len(expired))


@dataclass(frozen=True)
class RowsToRemove:
    """``chosen``: the rows. ``may_hold``: whether a file may have such rows, by its statistics. ``like``: rows that may
    have been chosen before, by a call that was killed."""

    chosen: Chosen
    may_hold: Callable[[DataFile], bool]
    like: Chosen


def remove_rows(table: CountedTable, selection: RowsToRemove) -> None:
    """Write the table's files anew that hold such rows, without these, and remove from the storage at once what holds
    them: files that no version of the table has any more, or yet, and then those files. May be repeated after any
    crash.

    Raises LakeError, also if a file without a version cannot be read, and is too young to have been left by a writer
    that was killed; OvertakenError when another process maintains the table.
    """
    path, chosen = table.files.path, selection.chosen
    with table_errors(f"rows of {path} cannot be removed", hint=WRITABLE):
        listed, paths = ListedTable.required(path), list[str]()
        strays = listed.strays
        # the rows of a file that was replaced are chosen no more if a call was killed after it had replaced it
        verdicts = [
            _stray_holds(table, each, selection.like if each.name in listed.removed else chosen) for each in strays
        ]
        delete_files(path, [stray.name for stray, holds in zip(strays, verdicts, strict=True) if holds])
        for file in table.files.added(listed.files.values()):
            if selection.may_hold(file) and _holds(table, file, chosen):
                left = (rows.filter(pc.invert(chosen(rows))) for rows in _rows(table, [file], None))
                listed = _replace(table, listed, [file], left, is_loss=True)
                paths.append(file.path)
        delete_files(path, paths)
    if None in verdicts:
        raise LakeError(
            f"{path}/{strays[verdicts.index(None)].name} is no version's, and cannot be read: it may be half written",
            hint="run this again in an hour: then it is removed",
        )


def _holds(table: CountedTable, file: DataFile, chosen: Chosen) -> bool:
    return any(pc.any(chosen(rows)).as_py() for rows in _rows(table, [file], None))


def _stray_holds(table: CountedTable, file: LakeFile, chosen: Chosen) -> bool | None:
    """Whether a file that is not part of the table holds such rows, or may; None if nobody knows."""
    try:
        return _holds(table, DataFile(file.name, file.size, file.modified), chosen)
    except FileNotFoundError:
        return False
    except (pa.ArrowException, OSError):
        return True if file.modified < time_now() - _UNFINISHED else None


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
            _put_together(table, ListedTable.required(path), after=number - 2 * _IN_PASSING_EVERY, below=_TINY_BYTES)
    except LakeError as error:
        _log.warning("%s", error)


def _expired(
    table: CountedTable, files: Sequence[DataFile], expiry: Expiry
) -> tuple[Sequence[DataFile], Sequence[DataFile]]:
    """The oldest of the files, those whose rows were all appended longer ago than ``age``; and which of them are not
    needed."""
    until = time_now() - expiry.age.total_seconds() * _MILLISECONDS
    if (needed := expiry.needed) is None:
        old = [file for file in files if file.modified < until]
        return old, old
    last = table.files.column
    old = [*takewhile(lambda file: file.modified < until and file.greatest.get(last) is not None, files)]
    return old, [file for file in old if file.greatest[last] < needed]


def _put_together(
    table: CountedTable, listed: ListedTable, *, after: int | None = None, below: int = _SMALL_BYTES
) -> ListedTable:
    """Replace the files of each period that are smaller than ``below`` bytes by larger ones; only those with numbers
    greater than ``after``."""
    periods: dict[int, list[DataFile]] = defaultdict(list)
    for file in table.files.added(listed.files.values()):
        last = file.greatest.get(table.files.column)
        if file.size < below and (after is None or (last is not None and last > after)):
            periods[_period(table, file)].append(file)
    for _, small in sorted(periods.items()):
        if len(small) > 1:
            listed = _replace(table, listed, small, _ordered(table, small), is_loss=False)
    return listed


def _replace(
    table: CountedTable, listed: ListedTable, old: Sequence[DataFile], rows: Iterator[pa.RecordBatch], *, is_loss: bool
) -> ListedTable:
    """Replace ``old`` files by new ones that hold ``rows``, in one commit. What others have appended since is kept.
    Raises OvertakenError if somebody else has replaced one of the old files."""
    path, modified = table.files.path, max(file.modified for file in old)
    new = DataFiles(path, table.layout, modified)
    new.write_all(rows)
    names = [file.path for file in old]
    while listed.files.keys() >= set(names):
        try:
            return listed.with_replaced(names, new.actions, is_loss=is_loss)
        except OvertakenError:
            listed = listed.newest()
    if new.actions and listed.files.keys() >= {file.path for file in new.actions}:
        return listed  # the commit was made, and its answer lost
    raise OvertakenError(f"another process maintains {path}", hint="run it again")


def _ordered(table: CountedTable, files: Sequence[DataFile]) -> Iterator[pa.RecordBatch]:
    """The files' rows, those that are often read alone last: a query for these then reads only the last row groups.
    They are few, and in memory until then."""
    apart: list[pa.RecordBatch] = []
    for batch in _rows(table, files, None):
        if table.apart is None:
            yield batch
        else:
            yield batch.filter(~table.apart)
            apart.append(batch.filter(table.apart))
    yield from apart


def _rows(table: CountedTable, files: Sequence[DataFile], condition: pc.Expression | None) -> Iterator[pa.RecordBatch]:
    for file in files:  # one by one, as a small file is then read by one request
        yield from table.files.dataset([file]).to_batches(filter=condition, batch_readahead=1)


def _period(table: CountedTable, file: DataFile) -> int:
    return file.modified // _DAY if table.by_day else 0
