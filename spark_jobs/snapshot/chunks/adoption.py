"""A snapshot in chunks that adopts another tool's rows: of each chunk the source sends hashes, and only those rows that
the other table does not have just so.

A row that nobody changes while the chunks are read is equal to one of the other table's rows, or it is read. What
becomes of all other rows is what becomes of them in any snapshot in chunks: the change log has their keys, and replaces
whatever was taken from either side.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Event

import numpy as np
import pyarrow as pa
from adbc_driver_postgresql import dbapi
from psycopg import sql

from spark_jobs.errors import LakeError
from spark_jobs.postgres.bulk_read import BulkConnect, streamed
from spark_jobs.progress import Step
from spark_jobs.snapshot.adopted.copied_table import CopiedTable
from spark_jobs.snapshot.adopted.row_hash import COMPARED, CopiedRows, compared_rows, row_hashes
from spark_jobs.snapshot.chunks.chunk_readers import Pace
from spark_jobs.snapshot.chunks.chunked_table import ChunkedTable
from spark_jobs.snapshot.chunks.planned_columns import VoidPlanError
from spark_jobs.snapshot.export import rows_query
from spark_jobs.snapshot.range_read import Batches, RangeQuery, marked, range_transaction
from spark_jobs.snapshot.table_read import TaskReader
from spark_jobs.storage import Recent
from spark_jobs.writers.with_arrow.whole_table import WrittenFiles

_ROWS_AT_ONCE = 10_000


class _Hashed(Recent[CopiedRows]):
    """Of the tables that are being read. Their snapshots are read on by one call after another, in turns."""


@dataclass(frozen=True)
class Adoption:
    """What ``chunked`` adopts of ``copy``."""

    chunked: ChunkedTable
    copy: CopiedTable

    @classmethod
    def of(cls, chunked: ChunkedTable) -> Adoption:
        """Raises what ``CopiedTable.of`` does."""
        return cls(chunked, _copy(chunked, chunked.plan.adopted))

    @cached_property
    def rows(self) -> CopiedRows:
        """Raises LakeError, and PreconditionError for a value that our type does not hold."""
        return self._remembered.value(self._name, lambda: CopiedRows.of(hashes for hashes, _ in self._hashed()))

    def forget(self) -> None:
        """The rows are no longer needed in memory."""
        self._remembered.take(self._name)

    @property
    def _remembered(self) -> _Hashed:
        return self.copy.path.storage.memory(_Hashed)

    @property
    def _name(self) -> str:
        return repr(self.copy)

    def _hashed(self) -> Iterator[tuple[np.ndarray, pa.RecordBatch]]:
        types = [column.lake_type for column in self.copy.shape.columns]
        count, progress = 0, self.chunked.work.run.progress
        with closing(self.copy.rows()) as batches:
            for rows in batches:
                yield row_hashes(rows, types), rows
                count += rows.num_rows
                progress(Step("adopt", f"{self.chunked.name}: {self.copy.path}", count, None, "rows"))

    def reader(self, pace: Pace) -> TaskReader:
        """Reads of a chunk the rows that differ, and records which rows of the copy do not. The source reads the whole
        chunk for it, and ``pace`` counts that."""
        chunked, copied = self.chunked, self.rows
        numbers = {task[0].label: number for number, task in enumerate(chunked.read.tasks)}

        def read_differing(connect: BulkConnect, snapshot_name: str | None, query: RangeQuery) -> Batches:
            number = numbers[query.label]
            with range_transaction(connect, snapshot_name, query) as connection:
                same, others = self._compared(connection, copied, number, query.label)
                pace.wait(query.stored_bytes, Event())
                for first in range(0, len(others), _ROWS_AT_ONCE):
                    some = marked(None, query.label, self._rows_at(number, others[first : first + _ROWS_AT_ONCE]))
                    with streamed(connection, some) as reader:
                        yield from reader
            chunked.record.adopt(number, same)

        return chunked.read.task_reader(replace(chunked.table.source, read=read_differing))

    def _compared(
        self, connection: dbapi.Connection, copied: CopiedRows, number: int, label: str
    ) -> tuple[np.ndarray, np.ndarray]:
        """Which rows of the copy the chunk has, by the first number of their hashes; and where in the source its other
        rows are: block and item."""
        table, chunk = self.chunked.table, self.chunked.plan.chunks[number]
        by_name = {column.attname: column for column in table.described.columns}
        columns = [by_name[column.name] for column in self.chunked.read.columns]
        same, others = [np.empty(0, np.uint64)], [np.empty((0, 2), np.int64)]
        with streamed(connection, marked(None, label, compared_rows(columns, chunk.rows(table.row_filter)))) as reader:
            for batch in reader:
                rows = np.frombuffer(b"".join(batch.column(0).to_pylist()), COMPARED)
                places = copied.places(rows)
                same.append(rows["first"][places >= 0])
                others.append(np.column_stack((rows["block"], rows["item"]))[places < 0])
        return np.concatenate(same), np.concatenate(others)

    def _rows_at(self, number: int, where: np.ndarray) -> str:
        table = self.chunked.table
        tids = ",".join(f'"({block},{item})"' for block, item in where)
        at = sql.SQL("ctid = ANY({}::tid[])").format(sql.Literal(f"{{{tids}}}"))
        names = [column.name for column in self.chunked.read.columns]
        return rows_query(table.described, names, self.chunked.plan.chunks[number].rows(table.row_filter, at))

    def write(self) -> WrittenFiles:
        """Write the rows of the copy that some chunk has, when all chunks are read. Raises LakeError, and VoidPlanError
        if it is not known which these are, or if the copy has them no longer."""
        chunked, copied = self.chunked, self.rows
        are_same = np.zeros(len(copied.first) + 1, bool)  # the last one, at -1, is that of a row without a place
        for numbers in chunked.record.adopted(chunked.plan):
            if numbers is None:
                raise VoidPlanError("a file that says which rows are adopted is gone")
            are_same[copied.places_by_first(numbers)] = True
        if are_same[-1]:
            raise VoidPlanError(f"{self.copy.path} is not what it was when it was compared")

        def adopted() -> Iterator[pa.RecordBatch]:
            for hashes, rows in self._hashed():
                yield rows.filter(pa.array(are_same[copied.places(hashes)]))

        written = chunked.staged.write(adopted())
        text = f"{chunked.name}: of {self.copy.path}, as they are in the source"
        chunked.work.run.progress(Step("adopted", text, written.rows, None, "rows"))
        return written


@contextmanager
def void_if_changed(chunked: ChunkedTable) -> Iterator[None]:
    """Raise VoidPlanError in place of a LakeError if the other table has another version by now."""
    try:
        yield
    except LakeError as error:
        newest = _copy(chunked)
        if newest.version == chunked.plan.adopted:
            raise
        raise VoidPlanError(f"somebody has changed {newest.path}, and {error.what}") from error


def _copy(chunked: ChunkedTable, version: str = "") -> CopiedTable:
    adopted = chunked.table.adopts
    assert adopted is not None  # or the plan would be void
    return CopiedTable.of(adopted, chunked.read.shape, chunked.work.pipeline.lake.root, version)
