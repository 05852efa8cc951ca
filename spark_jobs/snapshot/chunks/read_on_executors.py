"""Has executors of a cluster read chunks, each in a job of one task, which writes what it reads into files of Spark's.

Several jobs run at once, so a chunk is recorded as soon as it is read, as it is where this process reads.
"""

from __future__ import annotations

from dataclasses import replace
from threading import Event
from typing import TYPE_CHECKING

from spark_jobs.postgres.connection import conninfo
from spark_jobs.snapshot.chunks.chunked_table import ChunkedTable
from spark_jobs.snapshot.chunks.read_chunks import ChunkRead, Pace, ReadChunk
from spark_jobs.spark.errors import spark_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# how many chunks are read at once, where nobody has said it: how many cores a cluster has is not known here
CHUNKS_ON_EXECUTORS = 16


def read_on_executors(spark: SparkSession, chunked: ChunkedTable, pace: Pace) -> ReadChunk:
    """The reader raises what executors raise: a SourceError, an UnrepresentableError or a LakeError. ``spark``: a
    session with our settings."""
    pipeline, staged = chunked.work.pipeline, chunked.staged
    source = conninfo(pipeline.source.dsn)

    def read(number: int, stopped: Event) -> ChunkRead:
        task, chunk, folder = chunked.read.tasks[number], chunked.plan.chunks[number], staged.new_folder()
        of_chunk = replace(chunked.read, tasks=(task,))
        with spark_errors(f"chunk {number} of {chunked.name}", name=chunked.name, path=staged.path):
            noted = of_chunk.noted_values(spark, source, None, pipeline.on_unrepresentable)
            noted.rows.write.option("compression", "snappy").parquet(staged.path / folder)
            misfits = noted.misfits()
        pace.wait(chunk.stored_bytes, stopped)
        return staged.written_to(folder), misfits

    return read
