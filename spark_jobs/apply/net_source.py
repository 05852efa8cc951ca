"""A net change ready to be written: what it is like, and how a session reads its rows."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from spark_jobs.apply.landed_changes import LandedChanges
from spark_jobs.apply.net_change.on_driver import NetChange, net_change
from spark_jobs.change_counts import NO_CHANGES, ChangeCounts
from spark_jobs.configuration import Lake
from spark_jobs.decode.threads import in_threads
from spark_jobs.decode.values import OnUnrepresentable
from spark_jobs.delta.files import lake_errors, lake_filesystem
from spark_jobs.lake.net_write import NetForm, key_range_of
from spark_jobs.lake.table_state import TableState
from spark_jobs.schema.net_columns import ddl
from spark_jobs.schema.table_shape import TableShape

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)

Frame: TypeAlias = "Callable[[SparkSession], DataFrame]"

# a MERGE of 400,000 rows took 5.5 s from Parquet and 8 s from memory: it reads its source more than once
_STAGED_FROM_ROWS = 20_000
_ROW_GROUP_ROWS = 65_536  # what one task reads
# of the commit that a staging folder is for
_NUMBER = re.compile(r"(\d+)-")


@dataclass(frozen=True)
class NetSource:
    """``rows`` are to be written, ``read`` gives them to a session; ``changes`` were seen."""

    form: NetForm
    read: Frame
    rows: int
    changes: ChangeCounts = NO_CHANGES


@contextmanager
def net_on_driver(
    landed: LandedChanges, state: TableState, lake: Lake, on_unrepresentable: OnUnrepresentable
) -> Iterator[NetSource]:
    """The net change of a small range, computed here, for the commit after ``state``. Raises as ``net_change`` does.

    Handed over from memory when it has few rows, else through Parquet files in the lake that live as long as the
    context.
    """
    net = net_change(landed.rows, landed.relations, landed.shape, on_unrepresentable=on_unrepresentable)
    form = NetForm(net.columns, net.truncated, net.insert_only, key_range_of(net.rows, landed.shape))
    with _frame(net, landed.shape, state, lake) as read:
        yield NetSource(form, read, net.rows.num_rows, net.changes)


@contextmanager
def staging_folder(lake: Lake, state: TableState) -> Iterator[str]:
    """An empty folder in the lake, for executors and driver alike; gone when the context ends.

    Its name begins with the number of the commit that it is for, the one after ``state``.
    """
    _sweep(lake, state)
    folder = f"{_staging(lake, state)}/{state.commits + 1}-{secrets.token_hex(8)}"
    filesystem, path = lake_filesystem(folder)
    with lake_errors(f"{state.name}: {folder} cannot be written"):
        filesystem.create_dir(path, recursive=True)
    try:
        yield folder
    finally:
        _remove(filesystem, path)


def _staging(lake: Lake, state: TableState) -> str:
    return f"{lake.path}/_staging/{state.name.path}"


def _sweep(lake: Lake, state: TableState) -> None:
    """Remove what killed processes have staged for commits that the table has by now.

    What others have staged for the next commit stays: locks may be lost, and a process that is robbed of a part of its
    files might commit the rest.
    """
    filesystem, folder = lake_filesystem(_staging(lake, state))
    with lake_errors(f"{state.name}: {folder} cannot be read"):
        listed = filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    for staged in listed:
        if (number := _NUMBER.match(staged.base_name)) and int(number[1]) <= state.commits:
            _remove(filesystem, staged.path)


def _remove(filesystem: fs.FileSystem, folder: str) -> None:
    try:
        filesystem.delete_dir(folder)
    except OSError as error:  # what is to be done does not hang on it, and the next process sweeps
        _log.warning("%s could not be removed: %s", folder, error)


@contextmanager
def _frame(net: NetChange, shape: TableShape, state: TableState, lake: Lake) -> Iterator[Frame]:
    rows, schema = net.rows, ddl(net.columns.fields)
    if rows.num_rows < _STAGED_FROM_ROWS:
        _sweep(lake, state)
        yield lambda spark: spark.createDataFrame(rows, schema=schema).coalesce(1)
        return
    with staging_folder(lake, state) as folder:
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
