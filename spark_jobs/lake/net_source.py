"""A net change ready to be written: what it is like, and how a session reads its rows."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from spark_jobs.change_counts import NO_CHANGES, ChangeCounts
from spark_jobs.configuration import Lake
from spark_jobs.decode.table_shape import TableShape
from spark_jobs.decode.threads import in_threads
from spark_jobs.decode.values import OnUnrepresentable
from spark_jobs.lake.landed_changes import LandedChanges
from spark_jobs.lake.net_write import NetForm, key_range_of, net_schema
from spark_jobs.lake_files import lake_errors, lake_filesystem
from spark_jobs.net_change.on_driver import net_change
from spark_jobs.qualified_name import QualifiedName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)

Frame: TypeAlias = "Callable[[SparkSession], DataFrame]"

# a MERGE of 400,000 rows took 5.5 s from Parquet and 8 s from memory: it reads its source more than once
_STAGED_FROM_ROWS = 20_000
_ROW_GROUP_ROWS = 65_536  # what one task reads


@dataclass(frozen=True)
class NetSource:
    """``rows`` are to be written, ``read`` gives them to a session; ``changes`` were seen."""

    form: NetForm
    read: Frame
    rows: int
    changes: ChangeCounts = NO_CHANGES


@contextmanager
def net_on_driver(landed: LandedChanges, lake: Lake, on_unrepresentable: OnUnrepresentable) -> Iterator[NetSource]:
    """The net change of a small range, computed here. Raises as ``net_change`` does.

    Handed over from memory when it has few rows, else through a Parquet file in the lake that lives as long as the
    context.
    """
    net = net_change(landed.rows, landed.relations, landed.shape, on_unrepresentable=on_unrepresentable)
    form = NetForm(tuple(net.rows.column_names), net.truncated, net.insert_only, key_range_of(net.rows, landed.shape))
    with _frame(net.rows, landed.shape, lake) as read:
        yield NetSource(form, read, net.rows.num_rows, net.changes)


@contextmanager
def staging_folder(lake: Lake, name: QualifiedName) -> Iterator[str]:
    """An empty folder in the lake, for executors and driver alike; gone when the context ends.

    What a killed process has left of this table goes too: a table has one writer at a time.
    """
    folder = f"{lake.path}/_staging/{name.path}"
    filesystem, of_table = lake_filesystem(folder)
    part = secrets.token_hex(8)  # of another process, where nothing keeps it away
    with lake_errors(f"{name}: {folder} cannot be made"):
        filesystem.delete_dir_contents(of_table, missing_dir_ok=True)
        filesystem.create_dir(f"{of_table}/{part}", recursive=True)
    try:
        yield f"{folder}/{part}"
    finally:
        try:
            filesystem.delete_dir(f"{of_table}/{part}")  # not the others: another process may write the table by now
        except OSError as error:  # what was to be done is done, and the next process sweeps
            _log.warning("%s/%s could not be removed: %s", of_table, part, error)


@contextmanager
def _frame(rows: pa.Table, shape: TableShape, lake: Lake) -> Iterator[Frame]:
    schema = net_schema(tuple(rows.column_names), shape)
    if rows.num_rows < _STAGED_FROM_ROWS:
        yield lambda spark: spark.createDataFrame(rows, schema=schema).coalesce(1)
        return
    with staging_folder(lake, shape.name) as folder:
        with lake_errors(f"{shape.name}: {folder} cannot be written"):
            _stage(rows, folder)
        yield lambda spark: spark.read.schema(schema).parquet(folder)


def _stage(rows: pa.Table, folder: str) -> None:
    """A file for each core."""
    filesystem, path = lake_filesystem(folder)
    step = -(-rows.num_rows // pa.cpu_count())

    def write(first: int) -> None:
        piece, file = rows.slice(first, step), f"{path}/net-{first}.parquet"
        pq.write_table(piece, file, filesystem=filesystem, compression="snappy", row_group_size=_ROW_GROUP_ROWS)

    in_threads(write, range(0, rows.num_rows, step))
