"""The order of things: what a pipeline needs is made, missing snapshots are taken, windows are captured and applied.

``prepare``, ``snapshot``, ``capture`` and ``apply`` are its parts; each may be run alone, again, and after any crash.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from spark_jobs.apply.apply import CatchUpReport, SparkProvider, apply
from spark_jobs.apply.apply_messages import MessagesApplied
from spark_jobs.apply.table_applied import TableApplied
from spark_jobs.capture.capture import CaptureReport, capture
from spark_jobs.capture.slot_preparation import prepare_slot
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import CdcError, PreconditionError, SlotError
from spark_jobs.lake.cuts import Cut, forget
from spark_jobs.lake.table_state import table_states
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.postgres.connection import connected
from spark_jobs.postgres.publication import find_publications
from spark_jobs.postgres.slot import flushed_lsn
from spark_jobs.progress import Progress, silent
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.read_again import tables_to_read_again, told_to_wait
from spark_jobs.retries import again_when_lost
from spark_jobs.snapshot.snapshot_tables import TableSnapshot, snapshot_tables
from spark_jobs.tables.followed_tables import followed_names, watched_tables
from spark_jobs.tables.stopped_tables import TableStopped, require_readable, stopped_tables
from spark_jobs.write_guard import write_guard

# a table is read again at most so often in one sync; each round is one more cause
_ROUNDS = 2

__all__ = ["Prepared", "SyncReport", "apply", "capture", "prepare", "snapshot", "sync"]


@dataclass(frozen=True)
class Prepared:
    """``tables`` are followed, in the order of the configuration; ``checkpoint`` is the log's last marker.

    Those ``missing`` need their first snapshot. Those ``stopped`` cannot be followed as things are, and are not among
    ``tables``.
    """

    checkpoint: WindowMarker
    tables: tuple[QualifiedName, ...]
    missing: tuple[QualifiedName, ...]
    stopped: tuple[TableStopped, ...] = ()


@dataclass(frozen=True)
class SyncReport:
    """What one sync did. ``tables`` has one entry per table and round of windows that wrote or stopped something;
    ``messages`` is all rounds of the messages table together, None where there is none.

    ``lag_before`` and ``lag_after`` are WAL bytes between what was applied and what the server had flushed, measured at
    the start and at the end; a table that stopped is in ``errors`` and not in ``lag_after``.
    """

    snapshots: tuple[TableSnapshot, ...]
    windows: tuple[WindowMarker, ...]
    tables: tuple[TableApplied, ...]
    cut: Cut | None
    lag_before: int
    lag_after: int
    seconds: float
    messages: MessagesApplied | None = None
    stopped: tuple[TableStopped, ...] = ()

    @property
    def errors(self) -> tuple[CdcError, ...]:
        """One per table that stopped."""
        found = {taken.name: taken.error for taken in self.snapshots if taken.error}
        found |= {applied.name: applied.error for applied in self.tables if applied.error}
        found |= {table.name: table.error for table in self.stopped}
        told = self.messages.error if self.messages else None
        return (*found.values(), *([told] if told else []))


@again_when_lost
def prepare(pipeline: Pipeline) -> Prepared:
    """Make publication, slot and change log where they are missing; nothing is changed when an error is raised.

    A table that cannot be followed is told in ``stopped``, and does not hold back the others; before anything was
    made, its error is raised. Raises what ``prepare_slot`` raises.
    """
    with connected(pipeline.source.dsn) as connection:
        names = followed_names(connection, pipeline)
        checkpoint = ChangeLog(pipeline.lake.change_log).checkpoint()
        states = {} if checkpoint is None else table_states(pipeline.lake, names, checkpoint.identity)
        stopped = stopped_tables(connection, pipeline, names, states)
        if checkpoint is None:
            for table in stopped:
                raise table.error
            if not names:
                nothing = f"publication {', '.join(pipeline.source.publications)} has no table"
                raise PreconditionError(nothing, hint="ALTER PUBLICATION ... ADD TABLE")
        elif ("binary", "true") not in checkpoint.identity.options:
            # no window is read in binary before every table can be
            require_readable(connection, pipeline.source, names)
        halted = {table.name for table in stopped}
        tables = tuple(name for name in names if name not in halted)
        checkpoint = prepare_slot(pipeline, tables)
    return Prepared(checkpoint, tables, tuple(name for name in tables if name not in states), stopped)


def snapshot(
    spark: SparkProvider,
    pipeline: Pipeline,
    names: Sequence[QualifiedName] | None = None,
    *,
    reasons: Mapping[QualifiedName, str] | None = None,
    run_id: str = "",
    progress: Progress = silent,
) -> tuple[TableSnapshot, ...]:
    """Take a new snapshot of ``names`` (all followed tables), at one LSN. ``reasons``: of those that nobody asked for.
    A table that fails is reported, and keeps what it held.

    Raises SlotError before ``prepare``: without a slot the changes after the snapshot would be lost. Raises
    PreconditionError for a table that somebody asked for and that is not there, has no key, or cannot be followed.
    """
    log = ChangeLog(pipeline.lake.change_log)
    checkpoint = log.checkpoint()
    if checkpoint is None:
        raise SlotError(f"there is no change log at {log.path}", hint="`postgres-cdc sync` makes slot and log")
    with connected(pipeline.source.dsn) as connection:
        wanted = followed_names(connection, pipeline) if names is None else tuple(names)
        stopped = {table.name: table.error for table in stopped_tables(connection, pipeline, wanted, ())}
        for name, error in stopped.items():
            if reasons is None or name not in reasons:
                raise error
        wanted = tuple(name for name in wanted if name not in stopped)
        published = find_publications(connection, pipeline.source.publications)

    def ordinal_at(lsn: Lsn) -> int:
        # windows landed before the snapshot was exported end at or before it
        landed = log.markers(checkpoint.ordinal - 1)
        return max(marker.ordinal for marker in landed if marker.window.hi <= lsn)

    session = spark()
    with write_guard(pipeline.source) as guard:
        with guard.cuts():
            forget(pipeline.lake, wanted)
        taken = snapshot_tables(
            session,
            pipeline,
            wanted,
            system_identifier=checkpoint.identity.system_identifier,
            ordinal_at=ordinal_at,
            watched=watched_tables(pipeline, wanted, checkpoint),
            guard=guard,
            stored=published is not None and published.sends_generated,
            reasons=reasons,
            run_id=run_id,
            progress=progress,
        )
        with guard.cuts():  # a run beside this one may have cut the tables as they were
            forget(pipeline.lake, wanted)
    return (*taken, *(TableSnapshot(name, Lsn(0), error=error) for name, error in stopped.items()))


def sync(pipeline: Pipeline, spark: SparkProvider, *, run_id: str = "", progress: Progress = silent) -> SyncReport:
    """Bring every table to the WAL that is flushed now: prepare, snapshot what is missing, then window by window.

    Windows are applied ``max_per_run`` at a time, so the log never runs far ahead of the tables. A table that changed
    in a way that is not followed in place is read again, once for all its changes. A table that must stop stops alone.
    Raises CdcError for what stops all of them.
    """
    started = time.monotonic()
    prepared = prepare(pipeline)
    before = _flushed(pipeline) - prepared.checkpoint.window.hi
    done = _Done(stopped={table.name for table in prepared.stopped})
    if prepared.missing:
        done.add_snapshots(snapshot(spark, pipeline, prepared.missing, run_id=run_id, progress=progress))
    for _ in range(_ROUNDS):
        captured = _follow(pipeline, spark, done, run_id, progress)
        again = tables_to_read_again(pipeline, done.to_mend())
        if not again:
            break
        # a change may come while they are read: then they are read once more, in the next round
        done.add_snapshots(_read_again(spark, pipeline, again, run_id, progress))
    else:
        captured = _follow(pipeline, spark, done, run_id, progress)
    lag = max(0, _flushed(pipeline) - captured.landed_end)
    return done.report(prepared, before, lag, time.monotonic() - started)


def apply_and_read_again(
    spark: SparkProvider,
    pipeline: Pipeline,
    names: Sequence[QualifiedName],
    *,
    excluding: Collection[QualifiedName] = (),
    upto: Lsn | None = None,
    messages: bool | None = None,
    run_id: str = "",
    progress: Progress = silent,
) -> tuple[CatchUpReport, tuple[TableSnapshot, ...]]:
    """``apply``; the tables that only a new snapshot brings on get it, and are brought up to the same window.

    Returns the outcome of all tables, and the snapshots that were taken.
    """
    report = apply(
        spark,
        pipeline,
        names,
        excluding=excluding,
        upto=upto,
        messages=messages,
        run_id=run_id,
        progress=progress,
    )
    again = tables_to_read_again(pipeline, report.tables)
    if not again:
        return replace(report, tables=tuple(replace(done, error=told_to_wait(done)) for done in report.tables)), ()
    taken = _read_again(spark, pipeline, again, run_id, progress)
    read = [table.name for table in taken if table.error is None]
    since = apply(spark, pipeline, read, upto=upto, messages=False, run_id=run_id, progress=progress) if read else None
    outcomes = {done.name: done for done in (*report.tables, *(since.tables if since else ()))}
    for table in taken:
        if table.error is not None:
            outcomes[table.name] = replace(outcomes[table.name], error=table.error)
    return replace(report, tables=tuple(outcomes.values()), cut=since.cut if since else report.cut), taken


def _read_again(
    spark: SparkProvider, pipeline: Pipeline, again: Mapping[QualifiedName, str], run_id: str, progress: Progress
) -> tuple[TableSnapshot, ...]:
    """Their new snapshots; what keeps them from being taken at all is the error of these tables alone."""
    try:
        return snapshot(spark, pipeline, tuple(again), reasons=again, run_id=run_id, progress=progress)
    except CdcError as error:
        return tuple(
            TableSnapshot(
                name, Lsn(0), error=type(error)(f"{why}; it could not be read again: {error.what}", hint=error.hint)
            )
            for name, why in again.items()
        )


def _follow(pipeline: Pipeline, spark: SparkProvider, done: _Done, run_id: str, progress: Progress) -> CaptureReport:
    """Capture and apply up to the WAL that is flushed now."""
    upto = _flushed(pipeline)
    while True:
        captured = capture(pipeline, upto=upto, progress=progress)
        done.windows += captured.landed
        done.add(apply(spark, pipeline, excluding=done.failed, run_id=run_id, progress=progress))
        if captured.caught_up:
            return captured


@dataclass
class _Done:
    """What one sync has done so far. ``stopped`` cannot be snapshotted; ``failed`` are not tried again in it."""

    stopped: set[QualifiedName]
    failed: set[QualifiedName] = field(default_factory=set)
    snapshots: list[TableSnapshot] = field(default_factory=list)
    windows: list[WindowMarker] = field(default_factory=list)
    tables: dict[QualifiedName, list[TableApplied]] = field(default_factory=dict)
    messages: MessagesApplied | None = None
    cut: Cut | None = None

    def add_snapshots(self, taken: Sequence[TableSnapshot]) -> None:
        for table in taken:
            self.snapshots.append(table)
            if table.error is not None:
                self.failed.add(table.name)
            # what stopped the table before is mended, or is reported with the snapshot
            self.tables[table.name] = [done for done in self.tables.get(table.name, ()) if done.error is None]

    def add(self, report: CatchUpReport) -> None:
        self.messages = report.messages and report.messages.after(self.messages)
        self.cut = report.cut
        for outcome in report.tables:
            self.tables.setdefault(outcome.name, []).append(outcome)

    def to_mend(self) -> tuple[TableApplied, ...]:
        """The tables whose last outcome is an error, and that are there to be read."""
        last = (rounds[-1] for rounds in self.tables.values() if rounds)
        return tuple(done for done in last if done.error is not None and done.name not in self.stopped)

    def report(self, prepared: Prepared, lag_before: int, lag_after: int, seconds: float) -> SyncReport:
        return SyncReport(
            tuple(self.snapshots),
            tuple(self.windows),
            tuple(replace(done, error=told_to_wait(done)) for rounds in self.tables.values() for done in rounds),
            self.cut,
            lag_before,
            lag_after,
            seconds,
            self.messages,
            prepared.stopped,
        )


@again_when_lost
def _flushed(pipeline: Pipeline) -> Lsn:
    with connected(pipeline.source.dsn) as connection:
        return flushed_lsn(connection)
