"""Threads that read a table into files: when one ends early, all do, and nothing is left of their files."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_jobs.delta.data_files import Layout
from spark_jobs.errors import SourceError
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.table_shape import TableShape
from spark_jobs.snapshot.range_read import RangeQuery
from spark_jobs.snapshot.read_on_driver import range_threads, read_into_files
from spark_jobs.snapshot.table_read import TableRead
from spark_jobs.storage import Location

SCHEMA = pa.schema([pa.field("col-1", pa.int64())])
LAYOUT = Layout(SCHEMA, ("col-1",), (), stem="snapshot")
TASKS = 4
READ = TableRead(
    TableShape(1, QualifiedName("public", "t"), ()), (), tuple((RangeQuery("t", "", ""),) for _ in range(TASKS)), 0
)


def batch(number: int) -> pa.RecordBatch:
    return pa.record_batch({"v0": pa.array(range(number, number + 200_000))})


def reader(
    then: Callable[[int], Generator[pa.RecordBatch, None, None]],
) -> Callable[[int], Generator[pa.RecordBatch, None, None]]:
    """Each task has some rows, enough that they are written, and ``then`` more."""

    def read(task: int) -> Generator[pa.RecordBatch, None, None]:
        yield batch(task)
        yield from then(task)

    return read


def for_ever(_: int) -> Generator[pa.RecordBatch, None, None]:
    while True:
        yield batch(0)


def test_the_files_hold_what_all_tasks_read(tmp_path: Path) -> None:
    with range_threads(2) as threads:
        read_task = reader(lambda task: (batch(1000 * task) for _ in range(1)))
        written = read_into_files(len(READ.tasks), read_task, Location.of(str(tmp_path)), LAYOUT, threads)
    assert written.rows == TASKS * 400_000
    assert {action.path for action in written.actions} == {file.name for file in tmp_path.iterdir()}
    assert sum(pq.read_metadata(file).num_rows for file in tmp_path.iterdir()) == written.rows


def test_the_first_error_ends_the_other_tasks(tmp_path: Path) -> None:
    def fails(task: int) -> Generator[pa.RecordBatch, None, None]:
        if task == 1:
            raise SourceError("PostgreSQL refused: of task 1")
        return for_ever(task)

    with range_threads(2) as threads, pytest.raises(SourceError, match="of task 1"):
        read_into_files(len(READ.tasks), reader(fails), Location.of(str(tmp_path)), LAYOUT, threads)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_ends_all_tasks(tmp_path: Path) -> None:
    begun = Event()

    def endless(task: int) -> Generator[pa.RecordBatch, None, None]:
        begun.set()
        return for_ever(task)

    with ThreadPoolExecutor(1) as tables:

        def interrupted() -> None:
            with range_threads(2) as threads:
                tables.submit(
                    read_into_files, len(READ.tasks), reader(endless), Location.of(str(tmp_path)), LAYOUT, threads
                )
                assert begun.wait(60)
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            interrupted()
    assert list(tmp_path.iterdir()) == []
