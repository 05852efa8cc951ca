"""A net change as a DataFrame: handed over from memory when small, else through a Parquet file in the lake."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from spark_jobs.configuration import Lake
from spark_jobs.decode.table_shape import TableShape
from spark_jobs.lake_files import lake_filesystem
from spark_jobs.net_write import net_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Frame: TypeAlias = "Callable[[SparkSession], DataFrame]"

# a MERGE of 400,000 rows took 5.5 s from Parquet and 8 s from memory: it reads its source more than once
_STAGED_FROM_ROWS = 20_000
_ROW_GROUP_ROWS = 65_536  # what one task reads


@contextmanager
def net_frame(rows: pa.Table, shape: TableShape, lake: Lake) -> Iterator[Frame]:
    """How a session reads ``rows``; whatever was written to get them there is gone when the context ends."""
    schema = net_schema(tuple(rows.column_names), shape)
    if rows.num_rows < _STAGED_FROM_ROWS:
        yield lambda spark: spark.createDataFrame(rows, schema=schema).coalesce(1)
        return
    folder = f"{lake.path}/_staging/{secrets.token_hex(8)}"
    filesystem, path = lake_filesystem(folder)
    try:
        filesystem.create_dir(path, recursive=True)
        pq.write_table(
            rows, f"{path}/net.parquet", filesystem=filesystem, compression="snappy", row_group_size=_ROW_GROUP_ROWS
        )
        yield lambda spark: spark.read.schema(schema).parquet(folder)
    finally:
        filesystem.delete_dir(path)
