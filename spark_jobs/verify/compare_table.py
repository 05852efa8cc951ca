"""Compares one table of a snapshot with the version of its Delta table that shows the same LSN: small tables in this
process, all others with Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import CdcError, ConfigurationError, SchemaChangeError, new_snapshot
from spark_jobs.postgres.bulk_read import BulkConnect
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.schema.column_changes import DeltaColumn
from spark_jobs.schema.differing_columns import SAME_COLUMNS, DifferingColumns
from spark_jobs.schema.mode_columns import live_rows, own_columns
from spark_jobs.schema.table_shape import TableShape
from spark_jobs.snapshot.export import ExportedSnapshot
from spark_jobs.snapshot.table_read import SnapshotSource, TableRead
from spark_jobs.spark.errors import spark_errors
from spark_jobs.spark.session import isolated_session
from spark_jobs.verify.compare_hashes import compare_hashes
from spark_jobs.verify.compare_on_driver import are_equal, lake_on_driver
from spark_jobs.verify.compare_rows import RowComparison, compare_rows
from spark_jobs.verify.shown_version import shown_version
from spark_jobs.verify.table_verified import RowCounts, TableVerified
from spark_jobs.writers.delta_fields import has_columns_of
from spark_jobs.writers.with_spark.delta_table import table_at, table_columns


@dataclass(frozen=True)
class Thoroughness:
    """``quick``: compare hashes, and row by row only the groups that differ. ``sample``: read only this share of the
    source's blocks (0 to 1), and look these rows up in the lake. At most ``most`` differing rows of each table are
    reported.

    Raises ConfigurationError for both at once, or for a share out of range.
    """

    quick: bool = False
    sample: float | None = None
    most: int = 10

    def __post_init__(self) -> None:
        if self.quick and self.sample is not None:
            raise ConfigurationError("verify compares hashes or a sample, not both", hint="choose one of them")
        if self.sample is not None and not 0 < self.sample <= 1:
            raise ConfigurationError(f"a sample of {self.sample:%} cannot be taken", hint="ask for 0.1% to 100%")


@dataclass(frozen=True)
class Verification:
    """What all tables of one attempt share. ``at``: the window that ends at the snapshot's LSN. ``differing``: the
    columns in which tables differ from the source on purpose."""

    run: Run
    connect: BulkConnect
    exported: ExportedSnapshot
    at: WindowMarker
    how: Thoroughness
    differing: Mapping[QualifiedName, DifferingColumns]

    @property
    def pipeline(self) -> Pipeline:
        return self.run.pipeline

    def kept(self, name: QualifiedName) -> list[str]:
        """The columns of the table in the lake that the source has no longer."""
        return [column.attname for column in self.differing.get(name, SAME_COLUMNS).kept]


def compare_table(work: Verification, name: QualifiedName, read: TableRead | CdcError) -> TableVerified:
    lsn = work.exported.lsn
    if isinstance(read, CdcError):
        return TableVerified.not_compared(name, lsn, read)
    try:
        version = shown_version(work.pipeline, name, work.at)
        result = _equal_on_driver(work, read, version) or _compared_by_spark(work, read, version)
    except CdcError as error:
        return TableVerified.not_compared(name, lsn, error)
    return TableVerified.compared(name, lsn, version, result.counts, result.rows)


def _equal_on_driver(work: Verification, read: TableRead, version: int) -> RowComparison | None:
    """The result for a small table whose rows the driver finds equal; None for any other."""
    pipeline, shape = work.pipeline, read.shape
    if pipeline.merge_engine != "auto" or work.how.sample is not None or not read.is_small:
        return None
    lake = lake_on_driver(pipeline.lake.table(shape.name), version, _live_rows(pipeline, shape))
    if lake is None:
        return None
    rows, columns = lake
    _require_same_columns(work, columns, shape)
    source = read.values_on_driver(SnapshotSource(work.connect, work.exported.snapshot_name))
    if source is None or not are_equal(source, rows, shape):
        return None
    return RowComparison(RowCounts(source.num_rows, rows.num_rows), ())


def _live_rows(pipeline: Pipeline, shape: TableShape) -> str:
    live = live_rows(pipeline.table(shape.name).mode)
    assert live is not None
    return live


def _require_same_columns(work: Verification, columns: Sequence[DeltaColumn], shape: TableShape) -> None:
    """DDL reaches the lake with the next window after it. Raises SchemaChangeError until then."""
    lake_columns = [column for column in columns if column.name not in work.kept(shape.name)]
    if not has_columns_of(lake_columns, shape):
        names = ", ".join(sorted({each.name for each in lake_columns} ^ {each.name for each in shape.columns}))
        what = f"the lake does not have the source's columns yet ({names or 'one has another type or number'})"
        raise SchemaChangeError(what, hint=new_snapshot(shape.name))


def _compared_by_spark(work: Verification, read: TableRead, version: int) -> RowComparison:
    pipeline, how, shape = work.pipeline, work.how, read.shape
    path = pipeline.lake.table(shape.name)
    with (
        isolated_session(work.run.spark(), {}) as own,
        spark_errors(f"{shape.name}: the comparison at {work.exported.lsn} failed", name=shape.name, path=path),
    ):
        _require_same_columns(work, table_columns(own, path), shape)
        lake = table_at(own, path, version).where(_live_rows(pipeline, shape))
        ours = [column.name for column in own_columns(pipeline.table(shape.name).form)]
        lake = lake.drop(*ours, *work.kept(shape.name))
        source = read.rows(own, SnapshotSource.anywhere(pipeline, work.exported.snapshot_name))
        if how.quick:
            return compare_hashes(source, lake, shape, most=how.most)
        return compare_rows(source, lake, shape, most=how.most, source_is_sample=how.sample is not None)
