"""Give the Delta table the source table's current columns, before a range of changes is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from spark_jobs.apply.landed_changes import LandedChanges
from spark_jobs.apply.table_range import TableRange
from spark_jobs.errors import SchemaChangeError, new_snapshot
from spark_jobs.spark.errors import refused_ddl, spark_errors
from spark_jobs.table_layout import NO_LAYOUT
from spark_jobs.writers.arrow_ddl import rewrite_columns_here
from spark_jobs.writers.column_ddl import alter_columns, rewrite_columns
from spark_jobs.writers.opened_table import OpenedTable
from spark_jobs.writers.table_metadata import columns_altered, commit_metadata


def follow_columns(work: TableRange, landed: LandedChanges) -> TableRange:
    """Make the table's columns those of ``landed.shape``. Returns the range to write next; a rewrite is in its state,
    and the table must be opened again.

    A process killed at any step can start again: the remaining steps are found by comparison. Where existing rows get
    a value, they are rewritten in a numbered commit, like every change of rows. Raises OvertakenError, and
    SchemaChangeError where somebody has altered the table so that Delta refuses: clustered it by a column, for example.
    """
    if work.opened is not None and (done := _followed_here(work, landed, work.opened)) is not None:
        return done
    spark = work.run.spark()
    failed = f"{work.name}: the columns of {work.path} were not altered"
    with spark_errors(failed, name=work.name, path=work.path), _refusals(work):
        if landed.columns.rewrites_rows(work.state.mode):
            provenance = work.columns_provenance(landed.columns.words)
            layout = work.pipeline.table(work.name).options.layout
            version = rewrite_columns(spark, work.path, landed.shape, provenance, layout)
            return replace(work, state=provenance.state(work.name, version))
        alter_columns(spark, work.path, landed.columns)
    return work


def _followed_here(work: TableRange, landed: LandedChanges, opened: OpenedTable) -> TableRange | None:
    """The same without Spark; None if Spark has to do it."""
    if work.pipeline.merge_engine != "auto" or work.pipeline.table(work.name).options.layout != NO_LAYOUT:
        return None
    if not landed.columns.rewrites_rows(work.state.mode):
        change = columns_altered(opened, landed.columns)
        if change is None:
            return None
        commit_metadata(opened, change)
        return work
    provenance = work.columns_provenance(landed.columns.words)
    written = landed.shape.with_commit_columns(work.state.generation.commit_columns)
    version = rewrite_columns_here(opened, written, provenance, work.pipeline.writes)
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
