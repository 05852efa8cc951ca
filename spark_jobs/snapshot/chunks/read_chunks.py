"""Reads the chunks of one table that are not read yet, several at once, until all are read or the time is over.

Executors of a cluster read each in a job of one task, which writes files of Spark's. Several jobs run at once, so a
chunk is recorded as soon as it is read, as it is where this process reads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, field, replace
from threading import Event, Lock
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from spark_jobs.retries import again_when_lost
from spark_jobs.snapshot.chunks.chunked_table import ChunkedTable
from spark_jobs.snapshot.chunks.staged_files import StagedFiles
from spark_jobs.snapshot.read_on_driver import until_stopped
from spark_jobs.snapshot.table_read import MisfitsRead, SnapshotSource, TaskReader
from spark_jobs.spark.errors import spark_errors
from spark_jobs.writers.whole_table import WrittenFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# how many chunks executors read at once, where nobody has said it: how many cores a cluster has is not known here
CHUNKS_ON_EXECUTORS = 16


@dataclass
class Pace:
    """``bytes_per_second``: how much all threads read together, None: as much as they can. ``until``: when, by
    ``time.monotonic``, no further chunk is begun; one is always read."""

    bytes_per_second: int | None
    until: float
    _free_at: float = 0.0
    _lock: Lock = field(default_factory=Lock)

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self.until

    def wait(self, size: int, stopped: Event) -> None:
        """Called after ``size`` bytes were read."""
        if self.bytes_per_second is None:
            return
        with self._lock:
            self._free_at = max(self._free_at, time.monotonic()) + size / self.bytes_per_second
            pause = self._free_at - time.monotonic()
        stopped.wait(pause)


class ChunkReader(Protocol):
    """Reads the chunk with this number. It may end early once ``stopped`` is set."""

    def __call__(self, number: int, stopped: Event, /) -> WrittenFiles: ...


def read_on_driver(reader: TaskReader, staged: StagedFiles, pace: Pace) -> ChunkReader:
    """The reader raises a SourceError, an UnrepresentableError or a LakeError."""

    def read(number: int, stopped: Event) -> WrittenFiles:
        noted = MisfitsRead()
        with closing(reader(number, noted.note)) as batches:
            files = staged.write(_paced(batches, pace, stopped))
        return replace(files, misfits=noted.found)

    return read


def read_on_executors(spark: SparkSession, chunked: ChunkedTable, pace: Pace) -> ChunkReader:
    """The reader raises what executors raise: a SourceError, an UnrepresentableError or a LakeError. ``spark``: a
    session with our settings."""
    source, staged = SnapshotSource.anywhere(chunked.work.pipeline, None), chunked.staged

    def read(number: int, stopped: Event) -> WrittenFiles:
        task, chunk, folder = chunked.read.tasks[number], chunked.plan.chunks[number], staged.new_folder()
        with spark_errors(f"chunk {number} of {chunked.name}", name=chunked.name, path=staged.path):
            noted = replace(chunked.read, tasks=(task,)).noted_values(spark, source)
            noted.rows.write.option("compression", "snappy").parquet(staged.path / folder)
            misfits = noted.misfits()
        pace.wait(chunk.stored_bytes, stopped)
        return replace(staged.written_to(folder), misfits=misfits)

    return read


def read_chunks(
    numbers: Sequence[int],
    read: ChunkReader,
    pace: Pace,
    parallel: int,
    is_read: Callable[[int, WrittenFiles], None],
) -> None:
    """Read the chunks ``numbers``, in order; ``is_read`` is called with each that is read.

    A chunk whose connection is lost is read again. If one fails, those that are being read stop, and its error is
    raised. What ``is_read`` was told of is kept.
    """
    stopped, waiting, read = Event(), iter(numbers), again_when_lost(read)
    running: dict[Future[WrittenFiles], int] = {}
    with ThreadPoolExecutor(parallel, thread_name_prefix="snapshot-chunk") as pool:
        try:
            while True:
                while len(running) < parallel and not (running and pace.is_over):
                    if (number := next(waiting, None)) is None:
                        break
                    running[pool.submit(read, number, stopped)] = number
                if not running:
                    return
                ended, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in ended:
                    is_read(running.pop(future), future.result())
                if pace.is_over:
                    waiting = iter(())
        finally:  # also if this thread is interrupted
            stopped.set()


def _paced(batches: Iterator[pa.RecordBatch], pace: Pace, stopped: Event) -> Iterator[pa.RecordBatch]:
    for rows in until_stopped([stopped], batches):
        yield rows
        pace.wait(rows.nbytes, stopped)
