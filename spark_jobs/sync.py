"""The order of things: what a pipeline needs is made, missing snapshots are taken, windows are captured and applied.

``prepare``, ``snapshot``, ``capture`` and ``apply`` are its parts; each may be run alone, again, and after any crash.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from spark_jobs.apply import TableApplied
from spark_jobs.capture import capture
from spark_jobs.catch_up import SparkProvider, apply
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import CdcError, PreconditionError, SlotError
from spark_jobs.followed_tables import current_memberships, followed_names
from spark_jobs.lake.cuts import Cut, forget
from spark_jobs.lake.messages_table import MessagesApplied
from spark_jobs.lake.table_state import table_states
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.postgres.connection import connected
from spark_jobs.postgres.publication import find_publications
from spark_jobs.postgres.slot import flushed_lsn
from spark_jobs.progress import Progress, silent
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.retries import again_when_lost
from spark_jobs.slot_preparation import prepare_slot
from spark_jobs.snapshot import TableSnapshot, snapshot_tables
from spark_jobs.stopped_tables import TableStopped, broken_tables, require_readable, stopped_tables
from spark_jobs.write_guard import write_guard

__all__ = ["Prepared", "SyncReport", "apply", "capture", "prepare", "snapshot", "sync"]


@dataclass(frozen=True)
class Prepared:
    """``tables`` are followed, in the order of the configuration; ``checkpoint`` is the log's last marker.

    Those ``missing`` need a snapshot. Of these ``broken`` had one, and there may be a break since: they were not
    published for a time, or another table has their name. Those ``stopped`` cannot be followed as things are, and are
    not among ``tables``.
    """

    checkpoint: WindowMarker
    tables: tuple[QualifiedName, ...]
    missing: tuple[QualifiedName, ...]
    broken: tuple[TableStopped, ...] = ()
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
        now = current_memberships(connection, pipeline, tables, checkpoint)
    broken = broken_tables({name: states[name] for name in tables if name in states}, now)
    anew = {table.name for table in broken}
    missing = tuple(name for name in tables if name not in states or name in anew)
    return Prepared(checkpoint, tables, missing, broken, stopped)


def snapshot(
    spark: SparkProvider,
    pipeline: Pipeline,
    names: Sequence[QualifiedName] | None = None,
    *,
    run_id: str = "",
    progress: Progress = silent,
) -> tuple[TableSnapshot, ...]:
    """Take ``names`` (all followed tables) anew, at one LSN. A table that fails is reported, and keeps what it held.

    Raises SlotError before ``prepare``: without a slot the changes after the snapshot would be lost. Raises
    PreconditionError for a table that is not there or has no key.
    """
    log = ChangeLog(pipeline.lake.change_log)
    checkpoint = log.checkpoint()
    if checkpoint is None:
        raise SlotError(f"there is no change log at {log.path}", hint="`postgres-cdc sync` makes slot and log")
    with connected(pipeline.source.dsn) as connection:
        wanted = followed_names(connection, pipeline) if names is None else tuple(names)
        for table in stopped_tables(connection, pipeline, wanted, ()):
            raise table.error
        published = find_publications(connection, pipeline.source.publications)
        # before the snapshot: a break that comes in between shows, and costs another one
        members = current_memberships(connection, pipeline, wanted, checkpoint)

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
            memberships=members,
            guard=guard,
            stored=published is not None and published.sends_generated,
            run_id=run_id,
            progress=progress,
        )
        with guard.cuts():  # a run beside this one may have cut the tables as they were
            forget(pipeline.lake, wanted)
    return taken


def sync(pipeline: Pipeline, spark: SparkProvider, *, run_id: str = "", progress: Progress = silent) -> SyncReport:
    """Bring every table to the WAL that is flushed now: prepare, snapshot what is missing, then window by window.

    Windows are applied ``max_per_run`` at a time, so the log never runs far ahead of the tables. A table that must
    stop stops alone. Raises CdcError for what stops all of them.
    """
    started = time.monotonic()
    prepared = prepare(pipeline)
    before = _flushed(pipeline) - prepared.checkpoint.window.hi
    snapshots: tuple[TableSnapshot, ...] = ()
    if prepared.missing:
        snapshots = snapshot(spark, pipeline, prepared.missing, run_id=run_id, progress=progress)
    failed = {outcome.name for outcome in snapshots if outcome.error is not None}
    upto = _flushed(pipeline)
    landed: list[WindowMarker] = []
    tables: dict[QualifiedName, list[TableApplied]] = {}
    messages: MessagesApplied | None = None
    while True:
        captured = capture(pipeline, upto=upto, progress=progress)
        landed += captured.landed
        report = apply(spark, pipeline, excluding=failed, run_id=run_id, progress=progress)
        messages = report.messages and report.messages.after(messages)
        for outcome in report.tables:
            tables.setdefault(outcome.name, []).append(outcome)
        if captured.caught_up:
            break
    lag = _flushed(pipeline) - captured.landed_end
    outcomes = tuple(outcome for each in tables.values() for outcome in each)
    seconds = time.monotonic() - started
    return SyncReport(
        snapshots, tuple(landed), outcomes, report.cut, before, max(0, lag), seconds, messages, prepared.stopped
    )


@again_when_lost
def _flushed(pipeline: Pipeline) -> Lsn:
    with connected(pipeline.source.dsn) as connection:
        return flushed_lsn(connection)
