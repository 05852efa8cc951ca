"""Reads one table in threads of the driver, straight into data files: without a JVM, and without Python workers.

Server, decoder and Parquet writer are C++ that runs beside Python, so threads use all cores; each holds a few batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Executor, Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass
from threading import Event

import pyarrow as pa

from spark_jobs.delta.data_files import DataFiles, Layout
from spark_jobs.delta.files import create_local_folder, table_filesystem
from spark_jobs.retries import again_when_lost
from spark_jobs.snapshot.table_read import Rows
from spark_jobs.storage import Location
from spark_jobs.writers.whole_table import WrittenFiles


class _Stopped(Exception):  # noqa: N818 - no error
    """Another task of the table has failed."""


@dataclass(frozen=True)
class RangeThreads:
    """The threads that read the tasks of all tables of a snapshot. Once ``interrupted`` is set, all tasks stop."""

    pool: Executor
    interrupted: Event


@contextmanager
def range_threads(count: int) -> Iterator[RangeThreads]:
    """So many threads. An exception in the context, such as an interrupt by the user, ends what they do."""
    threads = RangeThreads(ThreadPoolExecutor(count, thread_name_prefix="snapshot-range"), Event())
    try:
        yield threads
    except BaseException:
        threads.interrupted.set()
        raise
    finally:
        threads.pool.shutdown()


def read_into_files(
    tasks: int, read_task: Callable[[int], Rows], path: Location, layout: Layout, threads: RangeThreads
) -> WrittenFiles:
    """Read so many tasks, as many at once as there are ``threads``, into files in the folder ``path``.

    A task whose connection is lost is read again, as long as the exported snapshot is there; what other tasks have read
    is kept. If one fails, the others stop, all files are removed, and its error is raised: a SourceError, an
    UnrepresentableError or a LakeError.
    """
    create_local_folder(path)
    stopped, filesystem = Event(), table_filesystem(path)

    @again_when_lost
    def write(task: int) -> DataFiles:
        files = DataFiles(filesystem, path, layout)
        # otherwise a session could be garbage before its statement is, which the driver complains about
        with closing(read_task(task)) as batches:
            files.write_all(until_stopped((stopped, threads.interrupted), batches))
        return files

    running = [threads.pool.submit(write, task) for task in range(tasks)]
    try:
        wait(running, return_when=FIRST_EXCEPTION)
    finally:  # also if this thread is interrupted
        if not all(_is_written(task) for task in running):
            stopped.set()
            _end(running)
    written = [task.result() for task in sorted(running, key=_failed_first)]
    return WrittenFiles(tuple(action for files in written for action in files.actions), sum(f.rows for f in written))


def until_stopped(stops: Sequence[Event], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """``batches``, which end with an exception once one of ``stops`` is set: another thread has the error."""
    for rows in batches:
        if any(stop.is_set() for stop in stops):
            raise _Stopped
        yield rows


def _end(running: Sequence[Future[DataFiles]]) -> None:
    """Wait until all tasks have stopped; remove the files of those that were done."""
    for task in running:
        task.cancel()
    wait(running)
    for task in running:
        if _is_written(task):
            task.result().remove()


def _is_written(task: Future[DataFiles]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


def _failed_first(task: Future[DataFiles]) -> bool:
    """False, so first, for a task that has failed by itself, and was not stopped because another one had."""
    return task.cancelled() or task.exception() is None or isinstance(task.exception(), _Stopped)
