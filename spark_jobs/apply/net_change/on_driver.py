"""The net change of a small range, computed on the driver: no Python worker has to start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from spark_jobs.apply.landed_changes import LandedChanges
from spark_jobs.apply.net_change.net_change import net_change
from spark_jobs.apply.staging import staging_folder, sweep_staging
from spark_jobs.apply.table_range import TableRange
from spark_jobs.decode.threads import in_threads
from spark_jobs.delta.files import lake_errors, lake_filesystem
from spark_jobs.options.table_mode import holds_changes
from spark_jobs.schema.net_columns import NetColumns, ddl
from spark_jobs.spark.session_conf import runs_on_driver
from spark_jobs.storage import Location
from spark_jobs.writers.net_source import Frame, NetSource, key_range_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# a MERGE of 400,000 rows took 5.5 s from Parquet and 8 s from memory: it reads its source more than once
_STAGED_FROM_ROWS = 20_000
_STAGED_FROM_BYTES = 32 << 20  # what Spark reads from memory is part of its plan, which is copied several times
_RELEASED_FROM_BYTES = 16 << 20
_ROW_GROUP_ROWS, _ROW_GROUP_BYTES = 65_536, 32 << 20  # what one task reads
_BROADCAST_VALUES, _BROADCAST_BYTES = 100_000, 4 << 20
# Where tasks and driver are one JVM, a larger net change need not be sent anywhere, and costs that JVM twice its size.
# Without sorting the table's rows, a MERGE of 860,000 rows into ten million took 7.6 s instead of 12.1
_BROADCAST_IN_ONE_JVM_BYTES = 96 << 20


@contextmanager
def net_on_driver(work: TableRange, landed: LandedChanges) -> Iterator[NetSource]:
    """Raises as ``net_change`` does."""
    _release(landed.rows)
    net, rules = net_change(landed.rows, landed.rules), landed.rules
    key_range = None if holds_changes(rules.mode) else key_range_of(net.rows, rules.shape)
    del landed  # with the rows, of which there may be many
    _release(net.rows)
    with frame_of(net.rows, net.columns, work) as (read, stage):
        yield NetSource(
            net.columns,
            net.truncated,
            net.insert_only,
            key_range,
            read,
            net.rows.num_rows,
            net.changes,
            lenient=rules.lenient,
            ended=net.ended,
            broadcast=is_broadcast(net.rows),
            in_memory=net.rows,
            misfits=net.misfits,
            stage=stage,
        )


def _release(rows: pa.Table) -> None:
    """Give back to the system what Arrow has freed while it made these rows: it keeps that, and NumPy, which decodes,
    cannot have it."""
    if rows.nbytes >= _RELEASED_FROM_BYTES:
        pa.default_memory_pool().release_unused()


def is_broadcast(rows: pa.Table) -> bool:
    """Whether the rows are far below Spark's broadcast threshold of 10 MB. Spark estimates some 20 bytes per value, for
    long strings too."""
    return bool(rows.num_rows * rows.num_columns <= _BROADCAST_VALUES and rows.nbytes <= _BROADCAST_BYTES)


@contextmanager
def frame_of(rows: pa.Table, columns: NetColumns, work: TableRange) -> Iterator[tuple[Frame, Callable[[], object]]]:
    """``NetSource.read`` and ``stage`` of a net change: Spark reads few rows from memory, and more from Parquet files
    in the lake, which live as long as the context."""
    schema, lake = ddl(columns.fields), work.pipeline.lake
    if rows.num_rows < _STAGED_FROM_ROWS and rows.nbytes < _STAGED_FROM_BYTES:
        sweep_staging(lake, work.state)
        yield lambda spark: spark.createDataFrame(rows, schema=schema).coalesce(1), lambda: None
        return
    with staging_folder(lake, work.state) as folder:

        @cache
        def staged() -> str:
            with lake_errors(f"{work.name}: {folder} cannot be written"):
                _stage(rows, folder)
            return folder

        is_broadcast = runs_on_driver(work.pipeline.spark) and rows.nbytes <= _BROADCAST_IN_ONE_JVM_BYTES

        def read(spark: SparkSession) -> DataFrame:
            frame = spark.read.schema(schema).parquet(staged())
            return frame.hint("broadcast") if is_broadcast else frame

        yield read, staged


def _stage(rows: pa.Table, folder: Location) -> None:
    """Write one file per core."""
    filesystem, path = lake_filesystem(folder)
    step = -(-rows.num_rows // pa.cpu_count())
    group_rows = max(1, min(_ROW_GROUP_ROWS, rows.num_rows * _ROW_GROUP_BYTES // max(1, rows.nbytes)))

    def write(first: int) -> None:
        piece, file = rows.slice(first, step), f"{path}/net-{first}.parquet"
        pq.write_table(piece, file, filesystem=filesystem, compression="snappy", row_group_size=group_rows)

    in_threads(write, range(0, rows.num_rows, step))
