"""Append Arrow batches to a Delta table without a JVM. Memory grows neither with the number of rows nor their width.

Arrow writes the Parquet files, ``deltalake`` commits them: its own writer buffers 8,192 rows per core before it writes
any, which is gigabytes for rows of a megabyte. Files of an append that fails before its commit are removed. A file
that a crash or a refused commit leaves behind is not part of the table; VACUUM removes it.
https://github.com/delta-io/delta/blob/master/PROTOCOL.md#add-file-and-remove-file
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable
from deltalake.transaction import AddAction, PostCommitHookProperties, RemoveAction
from pyarrow import fs

from spark_jobs.delta.files import WRITABLE, table_filesystem
from spark_jobs.errors import LakeError

# size of a row group before compression. Three are in memory at once: one is filled, one compressed, one written
_GROUP_BYTES = 16 << 20
_GROUP_ROWS = 128 << 10
FILE_BYTES = 32 << 20
_MILLISECONDS = 1000
_CLEAN_UP_EVERY = 100  # transaction versions: windows, or cuts


@dataclass(frozen=True)
class Layout:
    """``statistics``: the columns whose least and greatest values are written. ``unique``: columns whose values rarely
    repeat, and so get no dictionary."""

    schema: pa.Schema
    statistics: tuple[str, ...]
    unique: tuple[str, ...]


def append(
    table: DeltaTable, path: str, batches: Iterable[pa.RecordBatch], layout: Layout, commit: CommitProperties
) -> None:
    """Append in one commit, on the version that ``table`` is at; it stays at that version. ``batches`` are consumed one
    by one; at least one must have rows.

    Raises LakeError when files cannot be written, whatever ``batches`` raises, and whatever ``deltalake`` raises at the
    commit, such as CommitFailedError.
    """
    files = DataFiles(table_filesystem(path), path, layout)
    try:
        # one group is compressed while the next is gathered
        with ThreadPoolExecutor(max_workers=1) as packer:
            packed: Future[None] | None = None
            for group in row_groups(batches):
                if packed is not None:
                    packed.result()
                packed = packer.submit(files.write, pa.Table.from_batches(group, layout.schema))
            if packed is not None:
                packed.result()
        files.close()
    except BaseException:
        files.remove()
        raise
    # an error here may come after the commit, as its answer was lost: so the files must stay
    table.create_write_transaction(
        files.actions,
        "append",
        layout.schema,
        commit_properties=commit,
        post_commithook_properties=after_commit(commit),
    )


def after_commit(commit: CommitProperties) -> PostCommitHookProperties:
    """What ``deltalake`` does after a commit. It cleans up the log only after every hundredth transaction version, as
    that lists the whole log. ``write_checkpoint_if_due`` writes the checkpoints."""
    due = any(txn.version % _CLEAN_UP_EVERY == 0 for txn in commit.app_transactions or ())
    return PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=due)


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


@dataclass
class _Statistics:
    """The statistics of one file, in Delta's form."""

    rows: int = 0
    nulls: Counter[str] = field(default_factory=Counter)
    least: dict[str, Any] = field(default_factory=dict)
    greatest: dict[str, Any] = field(default_factory=dict)

    def add(self, group: pa.Table, columns: Iterable[str]) -> None:
        self.rows += group.num_rows
        for name in columns:
            column = group.column(name)
            self.nulls[name] += column.null_count
            if column.null_count < len(column):
                ends = pc.min_max(column).as_py()
                self.least[name] = min(self.least.get(name, ends["min"]), ends["min"])
                self.greatest[name] = max(self.greatest.get(name, ends["max"]), ends["max"])

    def to_json(self) -> str:
        return json.dumps(
            {
                "numRecords": self.rows,
                "minValues": self.least,
                "maxValues": self.greatest,
                "nullCount": dict(self.nulls),
            }
        )


class DataFiles:
    """Writes row groups to files of about ``FILE_BYTES``. ``actions`` add the files that are closed.

    ``modified``: for rows that are not new, when they were appended, in milliseconds since 1970.
    """

    def __init__(self, filesystem: fs.FileSystem, path: str, layout: Layout, modified: int | None = None) -> None:
        self.actions: list[AddAction | RemoveAction] = []
        self._modified = modified
        self._filesystem, self._path, self._layout = filesystem, path, layout
        self._name = ""
        self._sink: pa.NativeFile | None = None
        self._writer: pq.ParquetWriter | None = None
        self._statistics = _Statistics()

    def write(self, group: pa.Table) -> None:
        """Write one row group. Raises LakeError."""
        try:
            if self._writer is None:
                self._open()
            assert self._writer is not None
            assert self._sink is not None
            self._writer.write_table(group, row_group_size=max(group.num_rows, 1))
            self._statistics.add(group, self._layout.statistics)
            if self._sink.tell() >= FILE_BYTES:
                self._finish()
        except (OSError, pa.ArrowException) as error:
            raise self._failed(error) from None

    def close(self) -> None:
        """End the last file. Raises LakeError."""
        try:
            self._finish()
        except (OSError, pa.ArrowException) as error:
            raise self._failed(error) from None

    def remove(self) -> None:
        """Delete everything that was written."""
        for name in {self._name, *(action.path for action in self.actions)} - {""}:
            with suppress(OSError):  # a file that stays is not part of the table either
                self._filesystem.delete_file(name)

    def _open(self) -> None:
        self._name = f"part-{len(self.actions):05}-{uuid4()}-c000.zstd.parquet"
        self._statistics = _Statistics()
        self._sink = self._filesystem.open_output_stream(self._name)
        dictionaries = [name for name in self._layout.schema.names if name not in self._layout.unique]
        # level 1 compresses row images nearly as well as higher levels
        self._writer = pq.ParquetWriter(
            self._sink,
            self._layout.schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=dictionaries,
            write_statistics=list(self._layout.statistics),
        )

    def _finish(self) -> None:
        if self._writer is None or self._sink is None:
            return
        self._writer.close()
        size = self._sink.tell()
        self._sink.close()
        modified = int(time.time() * _MILLISECONDS) if self._modified is None else self._modified
        is_new = self._modified is None
        self.actions.append(AddAction(self._name, size, {}, modified, is_new, self._statistics.to_json()))
        self._writer = self._sink = None

    def _failed(self, error: Exception) -> LakeError:
        return LakeError(f"{self._path} cannot be written: {error}", hint=WRITABLE)
