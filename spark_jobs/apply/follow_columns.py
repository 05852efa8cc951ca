"""Give the Delta table the source table's current columns, before a range of changes is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

from spark_jobs.apply.landed_changes import LandedChanges
from spark_jobs.apply.table_range import TableRange
from spark_jobs.errors import SchemaChangeError, new_snapshot
from spark_jobs.options.table_layout import NO_LAYOUT
from spark_jobs.schema.column_changes import ColumnChanges
from spark_jobs.schema.table_shape import TableShape
from spark_jobs.spark.errors import refused_ddl, spark_errors
from spark_jobs.writers.table_commit import Provenance
from spark_jobs.writers.with_arrow.arrow_ddl import ArrowDdl
from spark_jobs.writers.with_spark.column_ddl import SparkDdl


class ColumnDdl(Protocol):
    """Changes the columns of one Delta table: Spark does, and the driver's process with Arrow and ``deltalake``."""

    def alter(self, changes: ColumnChanges, /) -> bool:
        """Follow changes after which every row has what it had. False if another has to do it."""

    def rewrite(self, shape: TableShape, provenance: Provenance, /) -> int | None:
        """Write all rows with the columns of ``shape`` in their types, in one numbered commit. New columns get their
        missing value, but not in rows that the source no longer has, which some modes keep. Returns the Delta version;
        None if another has to do it. Raises OvertakenError, and LakeError."""


def follow_columns(work: TableRange, landed: LandedChanges) -> TableRange:
    """Make the table's columns those of ``landed.shape``. Returns the range to write next; a rewrite is in its state,
    and the table must be opened again.

    A process killed at any step can start again: the remaining steps are found by comparison. Where existing rows get
    a value, they are rewritten in a numbered commit, like every change of rows. Raises OvertakenError, and
    SchemaChangeError where somebody has altered the table so that Delta refuses: clustered it by a column, for example.
    """
    layout = work.pipeline.table(work.name).options.layout
    if work.opened is not None and work.pipeline.merge_engine == "auto" and layout == NO_LAYOUT:
        done = _followed(ArrowDdl(work.opened, work.pipeline.writes), work, landed)
        if done is not None:
            return done
    ddl = SparkDdl(work.run.spark(), work.path, layout)
    failed = f"{work.name}: the columns of {work.path} were not altered"
    with spark_errors(failed, name=work.name, path=work.path), _refusals(work):
        done = _followed(ddl, work, landed)
    assert done is not None, "Spark follows everything"
    return done


def _followed(ddl: ColumnDdl, work: TableRange, landed: LandedChanges) -> TableRange | None:
    if not landed.columns.rewrites_rows(work.state.mode):
        return work if ddl.alter(landed.columns) else None
    provenance = work.columns_provenance(landed.columns.words)
    version = ddl.rewrite(landed.shape, provenance)
    return None if version is None else replace(work, state=provenance.state(work.name, version))


@contextmanager
def _refusals(work: TableRange) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if refused := refused_ddl(error):
            what = f"{work.name}: the columns of {work.path} cannot be altered in place: {refused}"
            raise SchemaChangeError(what, hint=new_snapshot(work.name)) from error
        raise
