"""Bring tables up to the change log: find which have something to apply, apply it, and write the cut that they reach.

The log's markers say which relations a window changed, and the latest cut says up to where each table is done. So a
table without changes costs nothing: its Delta table is not opened, nothing is scanned and nothing is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_jobs.apply.apply_messages import MessagesApplied, apply_messages
from spark_jobs.apply.apply_tables import TableApplied, apply_tables
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import CdcError, LakeError
from spark_jobs.lake.cuts import Cut, TableCut, latest_cut, write_cut
from spark_jobs.lake.messages_state import MESSAGES_NAME, has_messages_table, messages_state
from spark_jobs.lake.table_state import TableState
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.progress import Progress, silent
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.tables.followed_tables import all_followed_names
from spark_jobs.tables.standings import Standing, standings, state_to_apply_to
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
    log = ChangeLog(pipeline.lake.change_log)
    checkpoint = log.checkpoint()
    if checkpoint is None:
        raise LakeError(f"there is no change log at {log.path}", hint="`postgres-cdc sync` makes slot and log")
    followed = [name for name in all_followed_names(pipeline) if name not in excluding]
    wanted = followed if names is None else [name for name in names if name not in excluding]
    cut = latest_cut(pipeline.lake)
    found = standings(pipeline.lake, wanted, checkpoint.identity, cut)
    standing = [each for each in found.values() if isinstance(each, Standing)]
    done = {name: _without_commit(name, checkpoint, each) for name, each in found.items() if isinstance(each, CdcError)}
    with_messages = (names is None if messages is None else messages) and has_messages_table(pipeline)
    reached = _messages_reached(pipeline, checkpoint, cut) if with_messages else checkpoint.ordinal
    lowest = min([reached, *(each.ordinal for each in standing)])
    ahead = _landed(log, lowest, upto)
    last = ahead[-1] if ahead else checkpoint
    # first: they need no Spark, so an outbox is served while Spark is down
    told = apply_messages(pipeline, followed, checkpoint.identity, ahead or (last,), reached) if with_messages else None
    states: list[TableState] = []
    for each in standing:
        if any(each.is_touched_by(marker) for marker in ahead):
            try:
                states.append(state_to_apply_to(pipeline.lake, each, checkpoint.identity, cut))
            except CdcError as error:
                done[each.name] = _without_commit(each.name, last, error)
    if ahead:
        with write_guard(pipeline.source) as guard:
            if states:
                # a table that was snapshotted anew since the cut stands where its snapshot does
                reached = min(state.ordinal for state in states)
                markers = ahead if reached >= lowest else _landed(log, reached, upto)
                applied = apply_tables(
                    spark(), pipeline, states, markers, guard=guard, run_id=run_id, progress=progress
                )
                done |= {outcome.name: outcome for outcome in applied}
            if set(wanted) >= set(followed):
                shown = (_shown(each, done.get(each.name), last) for each in standing)
                tables = (*(table for table in shown if table), *_messages_shown(told))
                with guard.cuts():
                    cut = write_cut(pipeline.lake, last.ordinal, last.window.hi, tables, based_on=cut)
    for each in standing:
        done.setdefault(each.name, _without_commit(each.name, last))
    return CatchUpReport(tuple(done[name] for name in wanted), cut, told)


def _landed(log: ChangeLog, after: int, upto: Lsn | None) -> tuple[WindowMarker, ...]:
    return tuple(marker for marker in log.markers(after) if upto is None or marker.window.hi <= upto)


def _messages_reached(pipeline: Pipeline, checkpoint: WindowMarker, cut: Cut | None) -> int:
    """The window up to which the messages table is done: what the cut says, else its last commit. -1: all to do."""
    try:
        state = messages_state(pipeline, checkpoint.identity)
    except CdcError:
        return checkpoint.ordinal  # told again, and reported, when it is applied to
    if state is None:
        return -1
    known = cut.table(MESSAGES_NAME) if cut is not None else None
    # windows without messages left no commit; a table that was made anew is not the one of the cut
    return cut.ordinal if cut is not None and known is not None and known.version == state.version else state.ordinal


def _messages_shown(applied: MessagesApplied | None) -> tuple[TableCut, ...]:
    if applied is None or applied.error is not None or applied.state is None:
        return ()
    return (TableCut(MESSAGES_NAME, 0, "", applied.state.version),)


def _without_commit(name: QualifiedName, last: WindowMarker, error: CdcError | None = None) -> TableApplied:
    ends = last.ordinal, last.ordinal, last.window.hi, last.window.hi
    return TableApplied(name, *ends, "stopped" if error else "nothing to apply", error=error)


def _shown(standing: Standing, outcome: TableApplied | None, last: WindowMarker) -> TableCut | None:
    """The table as it stands at the end of window ``last``; None when it does not show that LSN."""
    if outcome is None:
        return standing.cut_at(last, None)
    return standing.cut_at(last, outcome.state) if outcome.error is None else None
