"""The data files that chunks are read into, which no version of the table names yet."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.transaction import AddAction

from spark_jobs.delta.data_files import DataFiles, Layout
from spark_jobs.delta.files import create_local_folder, files_below, lake_errors, table_filesystem
from spark_jobs.delta.whole_files import delete_files
from spark_jobs.schema.net_columns import arrow_schema, value, value_fields
from spark_jobs.schema.table_shape import TableShape
from spark_jobs.snapshot.chunks.planned_columns import PlannedColumns
from spark_jobs.storage import Location
from spark_jobs.writers.with_arrow.file_layout import file_layout, written_columns
from spark_jobs.writers.with_arrow.leftovers import PARTIAL
from spark_jobs.writers.with_arrow.whole_table import STEM, WrittenFiles


@dataclass(frozen=True)
class StagedFiles:
    """Files in the folder ``path``: that of the table if they become its own, or else one that Spark reads them from.
    They hold the values of ``shape``, in its order, under the names of ``layout``. ``is_partial``: they lie where a
    partial table can name them, which names files below its own folder only."""

    path: Location
    shape: TableShape
    layout: Layout
    is_partial: bool = False

    @classmethod
    def of(
        cls,
        columns: PlannedColumns,
        shape: TableShape,
        *,
        table: Location,
        aside: Location,
        whole: bool = True,
        is_partial: bool = False,
    ) -> StagedFiles:
        """``whole``: the table has no other columns."""
        stem = f"{PARTIAL}/{STEM}" if is_partial else STEM
        if columns.writer == "deltalake" and whole:
            layout = file_layout(written_columns(shape.columns), columns.physical, columns.ids, stem=stem)
            return cls(table, shape, layout, is_partial)
        layout = Layout(arrow_schema(value_fields(shape)), statistics=(), unique=(), stem=stem)
        return cls(aside, shape, layout, is_partial)

    @property
    def folder(self) -> Location:
        """Where the files lie, of those that are written now."""
        return self.path / PARTIAL if self.is_partial else self.path

    def new_folder(self) -> str:
        """For files of Spark; below ``path``."""
        return f"{PARTIAL}/{uuid4()}" if self.is_partial else str(uuid4())

    def write(self, batches: Iterable[pa.RecordBatch]) -> WrittenFiles:
        """``batches``: values in the order of the shape. After an error no file is left. Raises LakeError, and what
        ``batches`` raises."""
        create_local_folder(self.folder)
        files = DataFiles(self.path, self.layout)
        files.write_all(batches)
        return WrittenFiles(tuple(files.actions), files.rows)

    def keys(self, file: AddAction) -> pa.Table:
        """The key of each row of the file, in columns named by ``net_columns.value``. Raises LakeError."""
        names = [self.layout.schema.names[place] for place in self.shape.key_indices]
        with lake_errors(f"{self.path} cannot be read"):
            read = pq.read_table(file.path, filesystem=table_filesystem(self.path), columns=names)
        return read.select(names).rename_columns([value(place) for place in self.shape.key_indices])

    def batches(self, file: AddAction) -> Iterable[pa.RecordBatch]:
        """All rows of the file, in columns named by ``net_columns.value``, batch by batch. Raises LakeError."""
        names = [value(place) for place in range(len(self.shape.columns))]
        with (
            lake_errors(f"{self.path} cannot be read"),
            table_filesystem(self.path).open_input_file(file.path) as opened,
        ):
            for rows in pq.ParquetFile(opened).iter_batches(columns=self.layout.schema.names):
                yield pa.RecordBatch.from_arrays(rows.select(self.layout.schema.names).columns, names)

    def written_to(self, folder: str) -> WrittenFiles:
        """Files of Spark in this folder of ``path``. Raises LakeError."""
        filesystem = table_filesystem(self.path)
        files = [file for file in files_below(self.path / folder) if file.name.endswith(".parquet")]
        with lake_errors(f"{self.path} cannot be read"):
            rows = [pq.read_metadata(f"{folder}/{file.name}", filesystem=filesystem).num_rows for file in files]
        actions = (
            AddAction(f"{folder}/{file.name}", file.size, {}, file.modified, True, json.dumps({"numRecords": count}))
            for file, count in zip(files, rows, strict=True)
        )
        return WrittenFiles(tuple(actions), sum(rows))

    def missing(self, files: Iterable[AddAction]) -> frozenset[str]:
        """Those of the files that somebody has removed or cut off. Raises LakeError."""
        sizes = {file.name: file.size for file in files_below(self.path)}
        return frozenset(file.path for file in files if sizes.get(file.path) != file.size)

    def remove(self, files: Sequence[AddAction]) -> None:
        """Raises LakeError."""
        delete_files(self.path, [file.path for file in files])
