"""Plan what to apply: which tables have changes in the landed windows, and from which window on.

The log's markers say which relations a window changed, and the latest cut says how far each table is. So a table
without changes costs nothing: its Delta table is not opened, nothing is scanned and nothing is committed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from spark_jobs.apply.table_range import TableRange
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.change_log.window_marker import WindowMarker, first_missing
from spark_jobs.errors import LakeError
from spark_jobs.lake.messages_state import MESSAGES_NAME
from spark_jobs.lake.table_state import TableState
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.tables.followed_tables import all_followed_names
from spark_jobs.tables.matching_tables import resolved
from spark_jobs.tables.progress import Progress, concerns, progress_of


@dataclass(frozen=True)
class Known:
    """What a caller has just read, so that it is not read again: the log's last marker, and how far the tables are. If
    one of them has gone on since, applying finds that out."""

    checkpoint: WindowMarker
    progress: Progress


@dataclass(frozen=True)
class Plan:
    """``tables`` are those asked for, in that order; ``messages`` says whether the messages table was asked for too.

    ``followed`` are all tables of the pipeline that can go on. ``progress`` says how far the tables are. ``work`` has
    one entry per table with something to apply. ``ahead`` are the landed windows that some table, or the messages
    table, still lacks. ``last`` is the window at whose end everything is applied.
    """

    tables: tuple[QualifiedName, ...]
    messages: bool
    followed: tuple[QualifiedName, ...]
    progress: Progress
    work: tuple[TableRange, ...]
    ahead: tuple[WindowMarker, ...]
    last: WindowMarker

    @property
    def shows_all_tables(self) -> bool:
        """Whether all followed tables take part: only then a cut is written."""
        return set(self.tables) >= set(self.followed)


def plan_apply(
    run: Run,
    names: Sequence[QualifiedName] | None = None,
    *,
    excluding: Collection[QualifiedName] = (),
    upto: Lsn | None = None,
    messages: bool = False,
    known: Known | None = None,
) -> Plan:
    """Plan ``names`` (default: all followed tables) without ``excluding``, up to the last window that ends at or before
    ``upto``. ``known`` must include all these tables. Raises LakeError when there is no change log.
    """
    run = run.of(resolved(run.pipeline))
    pipeline = run.pipeline
    log = ChangeLog(pipeline.lake.change_log)
    checkpoint = known.checkpoint if known else log.checkpoint()
    if checkpoint is None:
        raise LakeError(f"there is no change log at {log.path}", hint="`postgres-cdc sync` creates slot and log")
    followed = tuple(name for name in all_followed_names(pipeline) if name not in excluding)
    tables = followed if names is None else tuple(name for name in names if name not in excluding)
    asked_for = (*tables, MESSAGES_NAME) if messages else tables
    progress = known.progress.of(asked_for) if known else progress_of(pipeline.lake, asked_for, checkpoint.identity)
    missing = {
        name: LakeError(f"{name} has no snapshot yet", hint=f"postgres-cdc snapshot --table '{name}'")
        for name in progress.without_snapshot(tables)
    }
    progress = replace(progress, errors={**progress.errors, **missing})
    # upto is an LSN of the log's current chapter: all windows of earlier chapters come before it, whatever their LSNs
    chapter = checkpoint.identity.chapter
    lowest = _lowest(progress, checkpoint, messages)
    ahead = tuple(
        marker
        for marker in (log.markers(lowest) if lowest < checkpoint.ordinal else ())
        if upto is None or marker.window.hi <= upto or marker.identity.chapter < chapter
    )
    work = tuple(
        TableRange(run, progress.states[name], ahead)
        for name in tables
        if name in progress.states and _has_work(progress.states[name], ahead)
    )
    return Plan(tables, messages, followed, progress, work, ahead, ahead[-1] if ahead else checkpoint)


def _has_work(state: TableState, ahead: Sequence[WindowMarker]) -> bool:
    """Whether some window concerns the table. Also true if the log lacks a window after the table's: it may have held
    changes of the table, and applying then reports the gap."""
    later = [marker for marker in ahead if marker.ordinal > state.ordinal]
    return first_missing(state.ordinal, later) is not None or any(concerns(marker, state) for marker in later)


def _lowest(progress: Progress, checkpoint: WindowMarker, messages: bool) -> int:
    """The ordinal after which some table has windows to look at."""
    is_missing = messages and MESSAGES_NAME not in progress.states and MESSAGES_NAME not in progress.errors
    if is_missing:  # the messages table's first commit covers the log from its beginning
        return -1
    return min([checkpoint.ordinal, *(state.ordinal for state in progress.states.values())])
