"""Reads a chunk of a table into staged files, and how fast: in this process, or by executors of a cluster.

Executors read each in a job of one task, which writes files of Spark's. Several jobs run at once, so a chunk is
recorded as soon as it is read, as it is where this process reads.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from threading import Event, Lock
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from spark_jobs.snapshot.chunks.chunked_table import ChunkedTable
from spark_jobs.snapshot.chunks.staged_files import StagedFiles
from spark_jobs.snapshot.read_on_driver import ReadTask, until_stopped
from spark_jobs.snapshot.table_read import MisfitsRead, SnapshotSource, TaskReader
from spark_jobs.spark.errors import spark_errors
from spark_jobs.writers.with_arrow.whole_table import WrittenFiles

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


ChunkReader: TypeAlias = ReadTask[WrittenFiles]


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


def _paced(batches: Iterator[pa.RecordBatch], pace: Pace, stopped: Event) -> Iterator[pa.RecordBatch]:
    for rows in until_stopped([stopped], batches):
        yield rows
        pace.wait(rows.nbytes, stopped)
