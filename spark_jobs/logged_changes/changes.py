"""Changes as data: one row for each change of a table, read from the change log alone, never from the source.

``changes`` gives them as Arrow; ``readers`` does the same for Spark, as a batch and as a stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from spark_jobs.configuration import Pipeline
from spark_jobs.errors import ConfigurationError
from spark_jobs.logged_changes.change_rows import ChangeColumns
from spark_jobs.logged_changes.logged_table import LoggedTable, TableUntil
from spark_jobs.logged_changes.plan import Plan
from spark_jobs.logicalrep.lsn import Lsn, Window
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.replay.landed_windows import LandedWindows
from spark_jobs.replay.points import Point


@dataclass(frozen=True)
class ChangesRead:
    """The changes of table ``name`` of the transactions that committed in [``lo``, ``hi``), in total order, as
    ``batches``, which can be read once."""

    name: QualifiedName
    lo: Lsn
    hi: Lsn
    batches: pa.RecordBatchReader


def changes(
    pipeline: Pipeline,
    table: QualifiedName | str,
    from_: Point | None = None,
    to: Point | None = None,
    *,
    partition: Window | str | None = None,
) -> pa.RecordBatchReader:
    """The changes of one table, one row each, in total order; docs/downstream.md describes the columns.

    Of the transactions that committed from ``from_`` on and before ``to``: LSNs, or times with a time zone; None: all
    that the newest chapter of the change log has. Or of a ``partition`` of Dagster's, by its key. Memory does not grow
    with the range. Values are decoded while the batches are read; DecodeError, UnrepresentableError and LakeError may
    be raised then, too.

    Raises ConfigurationError for a table that the log does not know, GapError if the log does not hold all of the
    range, SchemaChangeError if the table changed in it so that one schema cannot show it.
    """
    if partition is not None:
        from_, to = bounds(partition)
    return read_changes(logged_table(pipeline, table), from_, to).batches


def bounds(partition: Window | str) -> tuple[Lsn, Lsn]:
    """Where a partition of Dagster's begins and ends. Raises ConfigurationError if ``partition`` is no key."""
    try:
        window = Window.parse(partition) if isinstance(partition, str) else partition
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
    return window.lo, window.hi


def logged_table(pipeline: Pipeline, table: QualifiedName | str) -> LoggedTable:
    """Raises ConfigurationError if ``table`` is no name."""
    name = table_named(table) if isinstance(table, str) else table
    return LoggedTable(pipeline.lake, name, pipeline.column_options(name))


def table_named(text: str) -> QualifiedName:
    """Raises ConfigurationError if ``text`` is no name."""
    try:
        return QualifiedName.parse(text)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None


def read_changes(table: LoggedTable, from_: Point | None, to: Point | None) -> ChangesRead:
    """Raises as ``changes`` does."""
    plan, lo, hi = plan_of(table, from_, to)
    batches = chain.from_iterable(piece.batches() for piece in plan.pieces())
    schema = ChangeColumns(plan.shape.columns).schema
    return ChangesRead(table.name, lo, hi, pa.RecordBatchReader.from_batches(schema, batches))


def plan_of(table: LoggedTable, from_: Point | None, to: Point | None) -> tuple[Plan, Lsn, Lsn]:
    """The plan, and the range that it reads. The columns are those that the table has at its end. Raises as ``changes``
    does."""
    landed, lo, hi = _located(table, from_, to)
    until = TableUntil(table, [marker for marker in landed.markers if marker.window.lo < hi] or landed.markers[:1])
    within = [marker for marker in until.markers if marker.window.hi > lo]
    before = next((marker for marker in reversed(landed.markers) if marker.window.hi <= lo), None)
    return Plan(table, until.shape, until.mask, within, before, lo, hi), lo, hi


def _located(table: LoggedTable, from_: Point | None, to: Point | None) -> tuple[LandedWindows, Lsn, Lsn]:
    """The range, and the newest chapter that holds all of it. An earlier one is meant only if both ends are given."""
    chapters = LandedWindows.of_each_chapter(table.lake)
    landed = chapters[-1]
    if isinstance(from_, Lsn) and isinstance(to, Lsn):
        holding = (
            each for each in reversed(chapters) if each.start <= from_ <= each.end and each.start <= to <= each.end
        )
        landed = next(holding, landed)
    lo = landed.start if from_ is None else landed.begin_of(from_)
    hi = landed.end if to is None else landed.lsn_of(to)
    if lo > hi:
        raise ConfigurationError(
            f"the range of changes begins at {lo}, after its end {hi}", hint="its end is exclusive"
        )
    return landed, lo, hi
