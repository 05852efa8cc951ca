"""Writes the data files of a Delta table with Arrow. Until a commit adds them, they are not part of the table."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.transaction import AddAction

from spark_jobs.delta.commit import time_now
from spark_jobs.delta.files import storage_error, table_filesystem
from spark_jobs.delta.statistics import Statistics, is_wide
from spark_jobs.errors import LakeError
from spark_jobs.storage import Location

# size of a row group before compression. Three are in memory at once: one is filled, one compressed, one written
_GROUP_BYTES = 16 << 20
_GROUP_ROWS = 128 << 10
_SAMPLED_ROWS = 32 << 10
FILE_BYTES = 32 << 20


@dataclass(frozen=True)
class Layout:
    """``statistics``: the columns of which each file has statistics. ``unique``: columns whose values
    are known to repeat rarely; of others, the first rows of a file tell. ``file_bytes``: a file that has become larger
    is ended. ``stem``: how files' names begin.
    """

    schema: pa.Schema
    statistics: tuple[str, ...]
    unique: tuple[str, ...]
    file_bytes: int = FILE_BYTES
    stem: str = "part"


def row_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[Sequence[pa.RecordBatch]]:
    """Groups of batches, each to be written as one row group. Batches without rows are left out."""
    waiting: list[pa.RecordBatch] = []
    size = rows = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        waiting.append(batch)
        size += batch.nbytes
        rows += batch.num_rows
        if size >= _GROUP_BYTES or rows >= _GROUP_ROWS:
            yield waiting
            waiting, size, rows = [], 0, 0
    if waiting:
        yield waiting


def slices(rows: pa.Table, most: int) -> Iterator[pa.Table]:
    """``rows`` in parts, each as large as a row group, of ``most`` rows at most."""
    step = max(1, min(most, _GROUP_ROWS, rows.num_rows * _GROUP_BYTES // max(1, rows.nbytes)))
    return (rows.slice(first, step) for first in range(0, rows.num_rows, step))


class DataFiles:
    """Writes row groups to one file after another in the folder ``path``. ``actions`` add the files that are closed.

    ``modified``: for rows that are not new, when they were appended, in milliseconds since 1970.
    """

    def __init__(self, path: Location, layout: Layout, modified: int | None = None) -> None:
        self.actions: list[AddAction] = []
        self.rows = 0
        self._modified = modified
        self._filesystem, self._path, self._layout = table_filesystem(path), path, layout
        self._name = ""
        self._sink: pa.NativeFile | None = None
        self._writer: pq.ParquetWriter | None = None
        self._wide: frozenset[str] = frozenset()
        self._statistics = Statistics(layout.statistics)

    def write(self, group: pa.Table) -> None:
        """Write one row group. Raises LakeError."""
        wide = {name for name in group.column_names if is_wide(group.column(name))}
        try:
            if not wide <= self._wide:
                self._finish()
            if self._writer is None:
                self._open(group, wide)
            assert self._writer is not None
            assert self._sink is not None
            self._writer.write_table(group, row_group_size=max(group.num_rows, 1))
            self._statistics.add(group)
            self.rows += group.num_rows
            if self._sink.tell() >= self._layout.file_bytes:
                self._finish()
        except (OSError, pa.ArrowException) as error:
            raise self._failed(error) from None

    def write_all(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Write these rows, whose columns are in the layout's order, and end the last file. After an error nothing is
        left. Raises LakeError, and what ``batches`` raises."""
        schema = self._layout.schema
        try:
            for group in row_groups(batches):
                renamed = [pa.RecordBatch.from_arrays(rows.columns, schema=schema) for rows in group]
                self.write(pa.Table.from_batches(renamed, schema))
            self.close()
        except BaseException:
            self.remove()
            raise

    def close(self) -> None:
        """End the last file. Raises LakeError."""
        try:
            self._finish()
        except (OSError, pa.ArrowException) as error:
            raise self._failed(error) from None

    def remove(self) -> None:
        """Delete everything that was written."""
        for name in {self._name, *(action.path for action in self.actions)} - {""}:
            with suppress(OSError):  # a file that is left is not part of the table either
                self._filesystem.delete_file(name)

    def _open(self, group: pa.Table, wide: Collection[str]) -> None:
        """``group``: the first rows. ``wide``: columns whose statistics Parquet would not keep. To make them takes six
        copies of each value."""
        self._name = f"{self._layout.stem}-{len(self.actions):05}-{uuid4()}-c000.zstd.parquet"
        self._statistics = Statistics(self._layout.statistics)
        self._sink = self._filesystem.open_output_stream(self._name)
        schema = self._layout.schema
        mixed = [name for name in schema.names if name not in self._layout.unique]
        # level 1 compresses row images nearly as well as higher levels
        self._writer = pq.ParquetWriter(
            self._sink,
            schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=[name for name in mixed if _repeats(group.column(name))],
            write_statistics=[
                name
                for name in self._layout.statistics
                if name not in wide and not _may_be_nan(schema.field(name).type)
            ],
        )
        self._wide = frozenset(wide)

    def _finish(self) -> None:
        if self._writer is None or self._sink is None:
            return
        self._writer.close()
        size = self._sink.tell()
        self._sink.close()
        modified = time_now() if self._modified is None else self._modified
        is_new = self._modified is None
        self.actions.append(AddAction(self._name, size, {}, modified, is_new, self._statistics.to_json()))
        self._writer = self._sink = None

    def _failed(self, error: Exception) -> LakeError:
        return storage_error(f"{self._path} cannot be written", str(error))


def _repeats(column: pa.ChunkedArray) -> bool:
    """Whether a dictionary is worth making: where values hardly repeat, it takes more than half of the time of the
    write, and makes the file no smaller."""
    first = column.slice(0, _SAMPLED_ROWS)
    return bool(pa.types.is_nested(first.type)) or pc.count_distinct(first).as_py() * 2 <= len(first)


def _may_be_nan(kind: pa.DataType) -> bool:
    """Whether row groups must have no statistics of such a column: Arrow leaves NaN out of them, and Spark, which asks
    for rows with NaN, would skip all of them."""
    return bool(pa.types.is_floating(kind))
