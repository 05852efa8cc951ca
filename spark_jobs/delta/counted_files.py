"""The data files of a table to which numbered rows are appended: windows of the change log, cuts.

Numbers grow with each append. So the rows asked for are mostly in the newest commits, and only these are read, however
many files the table has. For older rows Delta's list of all files is read.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import and_
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable

from spark_jobs.delta.files import table_filesystem
from spark_jobs.delta.gathered_rows import gathered
from spark_jobs.delta.listed_table import ListedTable
from spark_jobs.delta.table import open_table
from spark_jobs.delta.transaction_log import TransactionLog
from spark_jobs.delta.whole_files import content_of
from spark_jobs.storage import Location, Recent

# the most commits that are read one by one; beyond that the list of all files costs less
_MOST_COMMITS = 200
_ANY = -(1 << 63)
_MEETS = "meets the condition"  # no column of a table has this name
# a sync reads the file of the newest window several times, once for each table
_SMALL_BYTES, _REMEMBERED_BYTES = 1 << 20, 32 << 20


@dataclass(frozen=True)
class DataFile:
    """One file of the table. ``least``, ``greatest`` and ``nulls`` are Delta's statistics of its columns. ``modified``:
    when its rows were appended, in milliseconds since 1970. ``size`` is in bytes."""

    path: str
    size: int
    modified: int
    rows: int | None = None
    least: Mapping[str, Any] = field(default_factory=dict)
    greatest: Mapping[str, Any] = field(default_factory=dict)
    nulls: Mapping[str, int] = field(default_factory=dict)

    def may_hold(self, column: str, value: int) -> bool:
        """Whether a row may have this value there, by the statistics."""
        return self.may_hold_any(column, value, value)

    def may_hold_any(self, column: str, first: int, last: int) -> bool:
        """Whether a row may have one of these values there, ``last`` included."""
        least, greatest = self.least.get(column), self.greatest.get(column)
        return least is None or greatest is None or (least <= last and first <= greatest)

    def holds(self, column: str) -> pc.Expression | None:
        """A condition that all of the column's values meet, by the statistics; None if they say nothing."""
        least, greatest, nulls = self.least.get(column), self.greatest.get(column), self.nulls.get(column)
        if nulls is not None and nulls == self.rows:
            return pc.field(column).is_null()
        if least is None or greatest is None:
            return None
        known = (pc.field(column) >= least) & (pc.field(column) <= greatest)
        return known if nulls == 0 else known | pc.field(column).is_null()


class _SmallFiles(Recent[pa.Table]):
    most = 8

    def is_too_much(self, values: OrderedDict[str, pa.Table]) -> bool:
        return super().is_too_much(values) or sum(each.nbytes for each in values.values()) > _REMEMBERED_BYTES


@dataclass(frozen=True)
class CountedFiles:
    """The files of the Delta table at ``path``, whose rows are numbered by ``column``.

    The methods raise the errors that ``table_errors`` turns into LakeError.
    """

    path: Location
    column: str
    schema: pa.Schema

    def of_last_append(self, log: TransactionLog | None = None) -> tuple[DataFile, ...]:
        """The files that hold the greatest number, and perhaps others, at the version of ``log`` or the newest one.
        Empty before the first append."""
        return self._newest(None, log)

    def after(self, number: int) -> tuple[DataFile, ...]:
        """The files that may hold numbers greater than ``number``."""
        return self._newest(number, None)

    def all(self, table: DeltaTable | None = None) -> tuple[DataFile, ...]:
        """All files, in the order of their numbers."""
        if table is not None:
            return self._listed(table, _ANY)
        listed = ListedTable.read(self.path, log_alone=True)
        return () if listed is None else self.added(listed.files.values())

    def added(self, actions: Iterable[Mapping[str, Any]]) -> tuple[DataFile, ...]:
        """The files that these actions add, in the order of their numbers."""
        return tuple(sorted(map(_data_file, actions), key=lambda file: file.least.get(self.column) or 0))

    def dataset(self, files: Sequence[DataFile]) -> ds.Dataset:
        """The rows of these files. A query does not open files that cannot match by their statistics."""
        filesystem, layout = table_filesystem(self.path), ds.ParquetFileFormat()
        fragments = [
            layout.make_fragment(
                content_of(self.path, file.path) if len(files) == 1 and _is_small(file) else file.path,
                filesystem=filesystem,
                partition_expression=_known_of(file, self.schema),
                file_size=file.size,
            )
            for file in files
        ]
        return ds.FileSystemDataset(fragments, self.schema, layout, filesystem)

    def rows(
        self, files: Sequence[DataFile], condition: pc.Expression, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """The rows of these files that meet the condition, by default with all columns. Those of a small file are
        remembered: files are never changed, and their names never used again."""
        names = [*(columns or self.schema.names)]
        if len(files) != 1 or not _is_small(files[0]):
            return self._rows_of_many(files, condition, names)
        remembered, name = self.path.storage.memory(_SmallFiles), f"{self.path}/{files[0].path}"
        return remembered.value(name, lambda: self.dataset(files).to_table()).filter(condition).select(names)

    def _rows_of_many(self, files: Sequence[DataFile], condition: pc.Expression, names: Sequence[str]) -> pa.Table:
        """Where most of a row group's rows meet the condition, as where one table changes, a filter would copy them.
        Row groups are chosen by the metadata of large files, which are read one after the other."""
        whole, large = self.dataset(files), {file.path for file in files if not _is_small(file)}
        parts, size = list[ds.ParquetFileFragment](), 0
        for file in whole.get_fragments(condition):
            if file.path not in large:
                parts.append(file)
                continue
            groups = file.split_by_row_group(condition, self.schema)
            size += sum(group.row_groups[0].total_byte_size for group in groups)
            parts += groups
        columns = {**{name: pc.field(name) for name in names}, _MEETS: condition}
        dataset = ds.FileSystemDataset(parts, self.schema, whole.format, whole.filesystem)
        batches = (rows_where(rows.column(_MEETS), rows.select(names)) for rows in dataset.to_batches(columns))
        return gathered(batches, pa.schema([self.schema.field(name) for name in names]), size)

    def _newest(self, number: int | None, at: TransactionLog | None) -> tuple[DataFile, ...]:
        log = at or TransactionLog.open(self.path)
        if log is None:
            return ()
        files = self._of_newest_commits(log, number)
        if files is not None:
            return files
        table = open_table(self.path, self.path, version=at.version if at else None)
        return () if table is None else self._listed(table, number)

    def _of_newest_commits(self, log: TransactionLog, number: int | None) -> tuple[DataFile, ...] | None:
        """The wanted files, by the newest commits alone; None if these are not enough to know them."""
        files: list[DataFile] = []
        removed: set[str] = set()
        for passed, commit in enumerate(log.commits()):
            removed |= {action["path"] for action in commit.actions("remove")}
            every = [*commit.actions("add")]
            added = [action for action in every if action["path"] not in removed]
            files += (file for file in map(_data_file, added) if self._reaches(file, number))
            # also where a compaction, in a commit that was read before, has replaced what was appended
            appended = [_data_file(action).least.get(self.column) for action in every if action["dataChange"]]
            if None in appended or passed == _MOST_COMMITS:
                return None
            least = min((first for first in appended if first is not None), default=None)
            # all earlier appends have smaller numbers
            if commit.version == 0 or (least is not None and (number is None or least <= number + 1)):
                # somebody has removed the rows of the last append: those before it are the newest then
                return None if number is None and least is not None and not files else tuple(files)
            if least is not None and number is not None and least - number > _MOST_COMMITS:
                return None
        return None

    def _listed(self, table: DeltaTable, number: int | None) -> tuple[DataFile, ...]:
        """The wanted files, by Delta's list of all files; without a number, those that hold the greatest."""
        actions = pa.table(table.get_add_actions(flatten=True))
        greatest = f"max.{self.column}"
        if greatest not in actions.column_names:  # there are no files, or none has statistics
            return tuple(map(_listed_file, actions.to_pylist()))
        last = actions.column(greatest)
        mask = pc.equal(last, pc.max(last)) if number is None else pc.greater(last, number)
        rows = actions.filter(pc.or_kleene(mask, pc.is_null(last))).to_pylist()
        return tuple(sorted(map(_listed_file, rows), key=lambda file: file.least.get(self.column) or 0))

    def _reaches(self, file: DataFile, number: int | None) -> bool:
        last = file.greatest.get(self.column)
        return number is None or last is None or last > number


def rows_where(mask: pa.Array, rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows for which the mask is true. They are not copied if they follow one another and are most of the rows:
    all of them stay in memory then."""
    places = np.flatnonzero(mask)
    is_one_run = 2 * len(places) > len(mask) and places[-1] - places[0] == len(places) - 1
    return rows.slice(places[0], len(places)) if is_one_run else rows.filter(mask)


def _is_small(file: DataFile) -> bool:
    return file.size <= _SMALL_BYTES


def _data_file(action: Mapping[str, Any]) -> DataFile:
    stats = json.loads(action.get("stats") or "{}")
    by_column = (stats.get(key) or {} for key in ("minValues", "maxValues", "nullCount"))
    path = unquote(action["path"])
    return DataFile(path, action["size"], action["modificationTime"], stats.get("numRecords"), *by_column)


def _listed_file(row: dict[str, Any]) -> DataFile:
    def of(prefix: str) -> dict[str, Any]:
        return {name.removeprefix(prefix): value for name, value in row.items() if name.startswith(prefix)}

    path = unquote(row["path"])
    statistics = of("min."), of("max."), of("null_count.")
    return DataFile(path, row["size_bytes"], row["modification_time"], row["num_records"], *statistics)


def _known_of(file: DataFile, schema: pa.Schema) -> pc.Expression:
    known = (file.holds(column.name) for column in schema if pa.types.is_integer(column.type))
    return reduce(and_, (expression for expression in known if expression is not None), pc.scalar(True))
