"""How data files of our tables are written without Spark: with the names, ids and statistics that Spark gives them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from spark_jobs.delta.data_files import Layout
from spark_jobs.options.table_mode import Mode
from spark_jobs.schema.mode_columns import mode_columns
from spark_jobs.schema.table_shape import LakeColumn

FILE_BYTES = 128 << 20
_WITH_STATISTICS = 32  # columns: as many as Spark writes statistics of


def written_columns(columns: Sequence[LakeColumn], mode: Mode = "mirror") -> pa.Schema:
    """The columns of a table by their names: the source's, then the mode's."""
    own = ((column.name, column.arrow) for column in mode_columns(mode))
    return pa.schema([*((column.name, column.lake_type.arrow) for column in columns), *own])


def file_layout(
    columns: pa.Schema, physical: Sequence[str], ids: Sequence[int | None], *, stem: str = "part"
) -> Layout:
    """Files hold the values of ``columns`` under their ``physical`` names, with these ``ids``. The names of the files
    begin with ``stem``."""
    return layout_of(pa.schema(map(_parquet_field, columns, physical, ids)), stem=stem)


def layout_of(schema: pa.Schema, *, stem: str = "part") -> Layout:
    """Files hold these columns."""
    statistics = tuple(schema.names[:_WITH_STATISTICS])
    return Layout(schema, statistics, unique=(), file_bytes=FILE_BYTES, stem=stem)


def _parquet_field(column: pa.Field, physical: str, number: int | None) -> pa.Field:
    metadata = None if number is None else {"PARQUET:field_id": str(number)}
    return pa.field(physical, column.type, metadata=metadata)
