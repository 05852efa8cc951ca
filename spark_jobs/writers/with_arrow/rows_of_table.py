"""The rows of a Delta table, read by this process: for a small table this takes milliseconds, and a Spark job a second.

https://delta-io.github.io/delta-rs/usage/querying-delta-tables/
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable, QueryBuilder

from spark_jobs.delta.files import table_filesystem
from spark_jobs.delta.table import table_errors
from spark_jobs.delta.whole_files import content_of
from spark_jobs.storage import Location
from spark_jobs.writers.with_arrow.opened_table import FEATURES, table_to_read

_READ_WHOLE_BYTES = 1 << 20


def readable_table(path: Location, version: int | None = None) -> DeltaTable | None:
    """The table at ``path``, at ``version`` or its newest one, if ``rows_of_table`` is certain to return what Spark
    reads.

    None if not, or if it is missing or cannot be read: then Spark reports what is wrong.
    """
    table = table_to_read(path, version)
    return table if table is not None and set(table.protocol().reader_features or ()) <= FEATURES else None


def rows_of_table(table: DeltaTable, where: str = "true") -> pa.Table:
    """The rows ``t`` that meet the SQL condition ``where``, in no order, all of them in memory. Raises LakeError."""
    rows = rows_of_table_within(table, None, where)
    assert rows is not None
    return rows


def rows_of_table_within(
    table: DeltaTable, most: int | None, where: str = "true", names: Sequence[str] = ()
) -> pa.Table | None:
    """The same rows; None if they take more than ``most`` bytes in memory: then not all of them are read. ``names``:
    of the columns that are read, by default all."""
    with table_errors(f"{table.table_uri} cannot be read"):
        batches, size = list[pa.RecordBatch](), 0
        for batch in every_row(table, where, names):
            batches.append(batch)
            if most is not None and (size := size + batch.nbytes) > most:
                return None
        return pa.Table.from_batches(batches, _schema(table, names))


def every_row(table: DeltaTable, where: str = "true", names: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
    """The same rows, a few thousand at a time. Raises what ``deltalake`` and Arrow raise."""
    selected = ", ".join('"' + name.replace('"', '""') + '"' for name in names) or "*"
    statement = f"SELECT {selected} FROM held AS t WHERE {where}"  # noqa: S608
    query = QueryBuilder().register("held", table).execute(statement)
    schema = _schema(table, names)  # DataFusion returns views of texts and bytes
    # Arrow lets other threads run while it waits for the storage; the iterator of the query does not
    for batch in pa.RecordBatchReader.from_stream(query):
        yield batch.select(schema.names).cast(schema)


def _schema(table: DeltaTable, names: Sequence[str]) -> pa.Schema:
    schema = pa.schema(table.schema().to_arrow())
    return pa.schema([schema.field(name) for name in names or schema.names])


def rows_of_file(path: Location, name: str, size: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """All rows of one data file, which has ``size`` bytes, deleted ones included. ``schema``: see ``rows_of_part``.
    Raises OSError, and LakeError."""
    return rows_of_part(data_file(path, name, size), schema)


def data_file(path: Location, name: str, size: int) -> ds.ParquetFileFragment:
    """One data file, or by its ``split_by_row_group`` the row groups of it. Raises LakeError.

    Spark writes instants in a form that would else be read as nanoseconds, which end in 2262.
    """
    layout = ds.ParquetFileFormat(coerce_int96_timestamp_unit="us")
    source: Any = content_of(path, name) if size <= _READ_WHOLE_BYTES else name
    return layout.make_fragment(source, table_filesystem(path), file_size=size)


def rows_of_part(part: ds.ParquetFileFragment, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """All rows of a ``data_file``, or of a row group. ``schema``: the columns under their names in files. One that came
    after the file is null. Raises OSError."""
    dataset = ds.FileSystemDataset([part], schema, part.format, part.filesystem)
    yield from dataset.to_batches(batch_readahead=1, fragment_readahead=1)
