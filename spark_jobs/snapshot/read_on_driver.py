"""Reads tables in threads of the driver, straight into data files: without a JVM, and without Python workers.

Server, decoder and Parquet writer are C++ that runs beside Python, so threads use all cores; each holds a few batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass
from threading import Event
from typing import Protocol, TypeVar

import pyarrow as pa

from spark_jobs.delta.data_files import DataFiles, Layout
from spark_jobs.delta.files import create_local_folder
from spark_jobs.retries import again_when_lost
from spark_jobs.snapshot.table_read import Rows
from spark_jobs.storage import Location
from spark_jobs.writers.with_arrow.whole_table import WrittenFiles

Result = TypeVar("Result", covariant=True)


class _Stopped(Exception):  # noqa: N818 - no error
    """Another task of the table has failed."""


@dataclass(frozen=True)
class RangeThreads:
    """The threads, ``count`` of them, that read the tasks of all tables of a snapshot. Once ``interrupted`` is set, all
    tasks stop."""

    count: int
    pool: Executor
    interrupted: Event


@contextmanager
def range_threads(count: int) -> Iterator[RangeThreads]:
    """So many threads. An exception in the context, such as an interrupt by the user, ends what they do."""
    threads = RangeThreads(count, ThreadPoolExecutor(count, thread_name_prefix="snapshot-range"), Event())
    try:
        yield threads
    except BaseException:
        threads.interrupted.set()
        raise
    finally:
        threads.pool.shutdown()


class ReadTask(Protocol[Result]):
    """Reads the task, or chunk, with this number. It may end early once ``stopped`` is set."""

    def __call__(self, number: int, stopped: Event, /) -> Result: ...


def read_tasks(
    numbers: Iterable[int],
    read: ReadTask[Result],
    threads: RangeThreads,
    is_read: Callable[[int, Result], None],
    is_over: Callable[[], bool] = lambda: False,
) -> None:
    """Read the tasks ``numbers``, in order, as many at once as there are ``threads``; ``is_read`` is called with each
    that is read. Once ``is_over``, no further one is begun; one is always read.

    A task whose connection is lost is read again, as long as the exported snapshot is there. If one fails, those that
    are being read stop, and its error is raised.
    """
    stopped, waiting, read_again = Event(), iter(numbers), again_when_lost(read)
    running: dict[Future[Result], int] = {}
    try:
        while True:
            while len(running) < threads.count and not (running and is_over()):
                if (number := next(waiting, None)) is None:
                    break
                running[threads.pool.submit(read_again, number, stopped)] = number
            if not running:
                return
            ended, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                is_read(running.pop(future), future.result())
            if is_over():
                waiting = iter(())
    finally:  # also if this thread is interrupted
        stopped.set()
        for future in running:
            future.cancel()
        wait(running)


def read_into_files(
    tasks: int, read_task: Callable[[int], Rows], path: Location, layout: Layout, threads: RangeThreads
) -> WrittenFiles:
    """Read so many tasks into files in the folder ``path``. If one fails, all files are removed, and its error is
    raised: a SourceError, an UnrepresentableError or a LakeError."""
    create_local_folder(path)
    written: dict[int, DataFiles] = {}

    def write(task: int, stopped: Event) -> None:
        files = DataFiles(path, layout)
        # otherwise a session could be garbage before its statement is, which the driver complains about
        with closing(read_task(task)) as batches:
            files.write_all(until_stopped((stopped, threads.interrupted), batches))
        written[task] = files

    try:
        read_tasks(range(tasks), write, threads, lambda *_: None)
    except BaseException:
        for files in written.values():
            files.remove()
        raise
    in_order = [written[task] for task in range(tasks)]
    return WrittenFiles(tuple(action for files in in_order for action in files.actions), sum(f.rows for f in in_order))


def until_stopped(stops: Sequence[Event], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """``batches``, which end with an exception once one of ``stops`` is set: another thread has the error."""
    for rows in batches:
        if any(stop.is_set() for stop in stops):
            raise _Stopped
        yield rows
