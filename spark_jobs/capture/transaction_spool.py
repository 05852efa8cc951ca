"""Keeps transactions until they end: small ones in memory, large ones in a file each.

Memory stays bounded however large a transaction is. A file is a sequence of Arrow IPC streams, one per spill, so no
file stays open in between. https://arrow.apache.org/docs/format/Columnar.html#ipc-streaming-format
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import pyarrow as pa

from spark_jobs.errors import SpoolError

# for all transactions together; beyond that, the largest are spilled to their files
MEMORY_BYTES = 8 << 20
# ``data``: messages in protocol 1's form; ``xid``: the (sub)transaction of each; ``arrival``: its number among the
# window's messages, in the order in which they came
SPOOL_SCHEMA = pa.schema([pa.field("data", pa.binary()), pa.field("xid", pa.int64()), pa.field("arrival", pa.int64())])
_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")


class TransactionSpool:
    """Batches of ``schema`` by top-level xid. Use it in ``with``, which deletes its files at the end.

    Its methods raise SpoolError when a file cannot be written or read.
    """

    def __init__(self, memory_bytes: int = MEMORY_BYTES, schema: pa.Schema = SPOOL_SCHEMA) -> None:
        self._schema = schema
        self._memory_bytes = memory_bytes
        self._kept: dict[int, list[pa.RecordBatch]] = {}
        self._sizes: dict[int, int] = {}
        self._files: dict[int, Path] = {}
        self._folder: Path | None = None
        self._in_memory = 0

    def __enter__(self) -> TransactionSpool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def append(self, xid: int, batch: pa.RecordBatch) -> None:
        """``batch`` must own its memory: a slice would keep the whole batch it was cut from alive."""
        self._kept.setdefault(xid, []).append(batch)
        self._sizes[xid] = self._sizes.get(xid, 0) + batch.nbytes
        self._in_memory += batch.nbytes
        while self._in_memory > self._memory_bytes:
            self._spill(max(self._sizes, key=lambda xid: self._sizes[xid]))

    def take(self, xid: int) -> Iterator[pa.RecordBatch]:
        """The transaction's batches in order, merged into few large ones. Once all are taken, it is forgotten."""
        file = self._files.get(xid)
        if file is not None:
            yield from _spooled(file)
        yield from self._whole(self._kept.get(xid, []))
        self.drop(xid)

    def drop(self, xid: int) -> None:
        """Forget the transaction, if there is one."""
        self._kept.pop(xid, None)
        self._in_memory -= self._sizes.pop(xid, 0)
        file = self._files.pop(xid, None)
        if file is not None:
            file.unlink()

    def _spill(self, xid: int) -> None:
        with _spool_errors():
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="postgres-cdc-spool-"))  # mode 0700: it holds rows
            file = self._files.setdefault(xid, self._folder / f"{xid}.arrows")
            with file.open("ab") as sink, pa.ipc.new_stream(sink, self._schema, options=_LZ4) as stream:
                for batch in self._whole(self._kept.pop(xid)):
                    stream.write_batch(batch)
        self._in_memory -= self._sizes.pop(xid)

    def _whole(self, batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """The batches merged: stream blocks are small, and one large batch is read far faster than many small ones."""
        table = pa.Table.from_batches(batches, self._schema).combine_chunks()
        return [batch for batch in table.to_batches() if batch.num_rows]


def _spooled(file: Path) -> Iterator[pa.RecordBatch]:
    with _spool_errors(), pa.OSFile(str(file)) as source:
        while source.tell() < source.size():
            yield from pa.ipc.open_stream(source)


@contextmanager
def _spool_errors() -> Iterator[None]:
    """Raise the disk's errors as SpoolError. Nothing has been landed, so the next run reads the window again."""
    try:
        yield
    except OSError as error:
        raise SpoolError(
            f"a streamed transaction cannot be kept in {tempfile.gettempdir()}: {error.strerror or error}",
            hint="make room there, or name another folder in TMPDIR, then run it again",
        ) from error
