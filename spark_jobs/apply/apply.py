"""Bring tables up to the change log: plan what there is to apply, apply it, and write the cut that it reaches."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_jobs.apply.apply_messages import MessagesApplied, apply_messages
from spark_jobs.apply.apply_tables import apply_tables
from spark_jobs.apply.plan import Plan, plan_apply
from spark_jobs.apply.table_applied import TableApplied
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import CdcError
from spark_jobs.lake.cuts import Cut, TableCut, write_cut
from spark_jobs.lake.messages_state import MESSAGES_NAME
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.progress import Progress, silent
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.tables.standings import Standing
from spark_jobs.write_guard import write_guard

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SparkProvider = Callable[[], "SparkSession"]


@dataclass(frozen=True)
class CatchUpReport:
    """``tables`` in the order asked for; ``cut`` is the latest one, None before the first.

    ``messages``: what was done to the messages table, None where it was not asked for.
    """

    tables: tuple[TableApplied, ...]
    cut: Cut | None
    messages: MessagesApplied | None = None

    @property
    def errors(self) -> tuple[CdcError, ...]:
        found = (*(table.error for table in self.tables), self.messages.error if self.messages else None)
        return tuple(error for error in found if error is not None)


def apply(
    spark: SparkProvider,
    pipeline: Pipeline,
    names: Sequence[QualifiedName] | None = None,
    *,
    excluding: Collection[QualifiedName] = (),
    upto: Lsn | None = None,
    messages: bool | None = None,
    run_id: str = "",
    progress: Progress = silent,
) -> CatchUpReport:
    """Apply landed windows to ``names`` (all followed tables), each from its own watermark up to the log's end.

    ``excluding`` are tables that cannot go on: they are left alone, and are in no cut. ``upto`` stops at the last
    window that ends at or before it. ``messages``: whether the messages table too, where the pipeline keeps one; by
    default when ``names`` are all. ``spark`` is called only when there is something to write. A table that fails, or
    that another process writes, is in the report with its error; the others are brought up to date.
    Raises LakeError when there is no change log.
    """
    with_messages = names is None if messages is None else messages
    plan = plan_apply(pipeline, names, excluding=excluding, upto=upto, messages=with_messages, run_id=run_id)
    # first: they need no Spark, so an outbox is served while Spark is down
    written = _apply_messages(pipeline, plan)
    done = {name: TableApplied.without_commit(name, plan.last, error=error) for name, error in plan.stopped.items()}
    cut = plan.cut
    if plan.ahead:
        with write_guard(pipeline.source) as guard:
            if plan.work:
                applied = apply_tables(spark(), plan.work, guard=guard, progress=progress)
                done |= {outcome.name: outcome for outcome in applied}
            if plan.shows_all_tables:
                with guard.cuts():
                    cut = _write_cut(pipeline, plan, done, written)
    for table in plan.standings:
        done.setdefault(table.name, TableApplied.without_commit(table.name, plan.last))
    return CatchUpReport(tuple(done[name] for name in plan.tables), cut, written)


def _apply_messages(pipeline: Pipeline, plan: Plan) -> MessagesApplied | None:
    if plan.messages_reached is None:
        return None
    markers = plan.ahead or (plan.last,)
    return apply_messages(pipeline, plan.followed, plan.last.identity, markers, plan.messages_reached)


def _write_cut(
    pipeline: Pipeline, plan: Plan, done: Mapping[QualifiedName, TableApplied], messages: MessagesApplied | None
) -> Cut | None:
    """Of the tables that show the end of the plan's last window."""
    shown = (_shown(table, done.get(table.name), plan.last) for table in plan.standings)
    tables = (*(table for table in shown if table), *_messages_shown(messages))
    return write_cut(pipeline.lake, plan.last.ordinal, plan.last.window.hi, tables, based_on=plan.cut)


def _shown(standing: Standing, outcome: TableApplied | None, last: WindowMarker) -> TableCut | None:
    """The table as it stands at the end of window ``last``; None when it does not show that LSN."""
    if outcome is None:
        return standing.cut_at(last, None)
    return standing.cut_at(last, outcome.state) if outcome.error is None else None


def _messages_shown(applied: MessagesApplied | None) -> tuple[TableCut, ...]:
    if applied is None or applied.error is not None or applied.state is None:
        return ()
    return (TableCut(MESSAGES_NAME, 0, "", applied.state.version),)
