"""Apply a range of windows to a table whose partitions were attached, detached or dropped without row events.

The rows of those partitions come from the source, all other changes from the log.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from spark_jobs.apply.landed_changes import LandedChanges
from spark_jobs.apply.net_change.net_of_range import landed_range, net_of_range
from spark_jobs.apply.regions_read import RegionsRead
from spark_jobs.apply.staging import staging_folder
from spark_jobs.apply.table_applied import TableApplied
from spark_jobs.apply.table_range import TableRange
from spark_jobs.change_counts import NO_CHANGES
from spark_jobs.errors import SchemaChangeError
from spark_jobs.lake.table_state import PartitionsRead
from spark_jobs.schema.misfits import NO_MISFITS, Misfits
from spark_jobs.schema.moment import Moment
from spark_jobs.schema.net_columns import ddl, value_fields
from spark_jobs.schema.table_shape import TableShape
from spark_jobs.spark.errors import spark_errors
from spark_jobs.spark.session import isolated_session
from spark_jobs.writers.delta_table import table_columns
from spark_jobs.writers.net_source import NetSource
from spark_jobs.writers.past_rows import values_at
from spark_jobs.writers.region_merge import RegionRows, write_regions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def apply_regions(work: TableRange, regions: RegionsRead) -> TableApplied:
    """Bring the table to the end of the range, in one commit.

    Raises OvertakenError, SchemaChangeError where only a new snapshot helps, and what reading and decoding raise. After
    an error nothing has been written.
    """
    spark = work.run.spark()
    landed = landed_range(work) if work.concerns_table() else None
    _require_same_columns(spark, work, regions.shape, landed)
    with ExitStack() as staged:
        folder = staged.enter_context(staging_folder(work.pipeline.lake, work.state))
        rows = _staged(spark, work, regions, f"{folder}/regions")
        net = staged.enter_context(net_of_range(work, landed)) if landed is not None else None
        return _commit(spark, work, regions, net, rows)


def _commit(
    spark: SparkSession, work: TableRange, regions: RegionsRead, net: NetSource | None, rows: RegionRows
) -> TableApplied:
    if net is not None and net.truncated:
        raise SchemaChangeError.because(work.name, "it was truncated, and partitions of it came or went")
    read = PartitionsRead(regions.reason, rows.count, str(regions.lsn))
    changes = net.changes if net is not None else NO_CHANGES
    provenance = replace(work.provenance(changes), partitions=read)
    net = None if net is None or net.is_empty else net
    misfits = Misfits.all_of((rows.misfits, NO_MISFITS if net is None else net.misfits))
    windows = f"windows {work.first.ordinal} to {work.last.ordinal}"
    with (
        spark_errors(f"{work.name}: {windows} were not applied", name=work.name, path=work.path),
        provenance.recording(work.pipeline.lake, work.name, misfits) as recorded,
    ):
        version = write_regions(spark, work.path, net, rows, recorded)
    return replace(
        TableApplied.nothing_of(work),
        outcome="applied",
        changes=changes,
        rows_written=rows.count + (net.rows if net is not None else 0),
        delta_version=version,
        engine="spark",
        partitions=read,
        state=work.state_since(),
    )


def _staged(spark: SparkSession, work: TableRange, regions: RegionsRead, folder: str) -> RegionRows:
    """Stage all rows of the regions before anything is committed: the commit records how many there are."""
    schema = ddl(value_fields(regions.shape))
    with isolated_session(spark, {}) as own, spark_errors(f"{work.name}: partitions could not be read"):
        noted = regions.values(own)
        noted.rows.write.option("compression", "snappy").parquet(folder)
        misfits = noted.misfits().at(regions.lsn)
        count = own.read.schema(schema).parquet(folder).count()
    regions.require_unaltered()

    moment, commit_columns = Moment(regions.lsn, regions.at), work.state.generation.commit_columns
    written = regions.shape.with_commit_columns(commit_columns)

    def read(session: SparkSession) -> DataFrame:
        rows = session.read.schema(schema).parquet(folder)
        return values_at(moment, rows, regions.shape, commit_columns)

    return RegionRows(regions.regions, written, read, count, work.state.version, misfits)


def _require_same_columns(
    spark: SparkSession, work: TableRange, shape: TableShape, landed: LandedChanges | None
) -> None:
    """Raises SchemaChangeError unless lake, change log and source have the same columns."""
    with spark_errors(f"{work.name}: the table at {work.path} cannot be read", name=work.name, path=work.path):
        lake_columns = {column.name: (column.sql, column.attnum) for column in table_columns(spark, work.path)}
    now = {column.name: (column.lake_type.sql, column.attnum) for column in shape.columns}
    same = lake_columns.keys() == now.keys() and all(
        lake_columns[name] in (now[name], (now[name][0], None)) for name in now
    )
    if landed is not None:
        same &= not landed.words and _described(landed.shape) == _described(shape)
    if not same:
        raise SchemaChangeError.because(work.name, "its columns or its key changed, and partitions of it came or went")


def _described(shape: TableShape) -> list[tuple[str, int, str, bool]]:
    return [(column.name, column.attnum, column.lake_type.sql, column.key) for column in shape.columns]
