"""The net change of a large range in a mode other than ``mirror``, in parallel: functions for ``mapInArrow``.

Like ``on_executors``, but every change counts: the first step drops nothing. It only gives each half of a change its
key, so that the second step has all changes of a key in one partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.apply.net_change.actions import Actions
from spark_jobs.apply.net_change.appended import appended_changes
from spark_jobs.apply.net_change.kept_past import rows_that_keep_past
from spark_jobs.apply.net_change.on_executors import (
    CELLS,
    INPUT_COLUMNS,
    PARTIAL_SCHEMA,
    final_rows,
    in_batches,
    leaning,
    partial_rows,
    pieces,
    unknown_to_themselves,
    whole,
)
from spark_jobs.apply.net_change.rows import NetRows
from spark_jobs.apply.net_change.timeline import Timeline
from spark_jobs.apply.net_change.truncates import Commit
from spark_jobs.change_log.schema import CHANGE_LOG_SCHEMA
from spark_jobs.decode.ordered_changes import OrderedChanges
from spark_jobs.decode.values import OnUnrepresentable
from spark_jobs.schema.net_columns import LEANS
from spark_jobs.schema.relation_version import RelationVersion
from spark_jobs.schema.table_shape import TableShape
from spark_jobs.table_mode import Mode

Batches = Iterator[pa.RecordBatch]

PAST_INPUT_COLUMNS = (*INPUT_COLUMNS, "commit_time", "xid")
_PARTIAL = pa.schema([*PARTIAL_SCHEMA, CHANGE_LOG_SCHEMA.field("commit_time")])


@dataclass(frozen=True)
class PastWork:
    """How to turn one table's changes in a range into rows. ``truncates``: its TRUNCATEs there, in order. ``lenient``:
    an inserted key may already be in the table."""

    shape: TableShape
    relations: Mapping[int, RelationVersion]
    mode: Mode
    truncates: tuple[Commit, ...]
    lenient: bool
    on_unrepresentable: OnUnrepresentable

    def rows(self, actions: Actions, given: pa.Table) -> NetRows:
        """``given``: the rows that the actions were made of, with their commit times."""
        timeline = Timeline.of(actions, given, self.truncates)
        return rows_that_keep_past(
            self.mode, timeline, lenient=self.lenient, on_unrepresentable=self.on_unrepresentable
        )


def appended(work: PastWork) -> Callable[[Batches], Batches]:
    """Changes of one task, without TRUNCATEs, in any order → the rows of mode ``append``."""

    def run(batches: Batches) -> Batches:
        for rows in pieces(batches, CELLS // len(work.shape.columns)):
            ordered = OrderedChanges.of(rows, work.relations, work.shape)
            yield from in_batches(appended_changes(ordered, rows, on_unrepresentable=work.on_unrepresentable))

    return run


def past_partial(work: PastWork) -> Callable[[Batches], Batches]:
    """Changes of one task, in any order → PARTIAL_SCHEMA and the commit's time, one row for each half of a change."""

    def run(batches: Batches) -> Batches:
        for rows in pieces(batches, CELLS // len(work.shape.columns)):
            actions = Actions.of(OrderedChanges.of(rows, work.relations, work.shape))
            given = rows.select((*INPUT_COLUMNS, "commit_time"))
            halves = partial_rows(given, actions, np.arange(len(actions)), unknown_to_themselves(actions))
            yield from in_batches(halves.select(_PARTIAL.names))

    return run


def past_final(work: PastWork) -> Callable[[Batches], Batches]:
    """Batches of ``past_partial`` that hold all rows of their keys → ``final_schema``."""

    def run(batches: Batches) -> Batches:
        rows = whole(batches, _PARTIAL)
        if pc.any(rows.column(LEANS.name)).as_py():
            yield leaning(work.shape, work.mode)
            return
        halves = np.asarray(rows.column("half").to_numpy(), dtype=np.int8)
        ordered = OrderedChanges.of(rows, work.relations, work.shape, halves)
        yield from final_rows(work.rows(Actions.of(ordered, halves[ordered.order]), rows))

    return run


def past_ordered(work: PastWork) -> Callable[[Batches], Batches]:
    """All changes of the range in one partition → ``final_schema``."""

    def run(batches: Batches) -> Batches:
        rows = whole(batches, CHANGE_LOG_SCHEMA)
        yield from final_rows(work.rows(Actions.of(OrderedChanges.of(rows, work.relations, work.shape)), rows))

    return run
