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
from spark_jobs.errors import CdcError, LakeError, SlotError
from spark_jobs.followed_tables import followed_names, require_readable, usable_facts
from spark_jobs.lake.cuts import Cut, forget
from spark_jobs.lake.messages_table import MessagesApplied
from spark_jobs.lake.table_state import table_state
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.postgres.connection import connected
from spark_jobs.postgres.slot import flushed_lsn
from spark_jobs.progress import Progress, silent
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.slot_preparation import prepare_slot
from spark_jobs.snapshot import TableSnapshot, snapshot_tables

__all__ = ["Prepared", "SyncReport", "apply", "capture", "prepare", "snapshot", "sync"]


@dataclass(frozen=True)
class Prepared:
    """``tables`` are followed, those ``missing`` have no snapshot yet; ``checkpoint`` is the log's last marker."""

    checkpoint: WindowMarker
    tables: tuple[QualifiedName, ...]
    missing: tuple[QualifiedName, ...]


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

    @property
    def errors(self) -> tuple[CdcError, ...]:
        """One per table that stopped."""
        found = {taken.name: taken.error for taken in self.snapshots if taken.error}
        found |= {applied.name: applied.error for applied in self.tables if applied.error}
        told = self.messages.error if self.messages else None
        return (*found.values(), *([told] if told else []))


def prepare(pipeline: Pipeline) -> Prepared:
    """Make publication, slot and change log where they are missing; nothing is changed when an error is raised.

    Raises PreconditionError for a table that cannot be followed, and what ``prepare_slot`` raises.
    """
    with connected(pipeline.source.dsn) as connection:
        names = followed_names(connection, pipeline)
        checkpoint = ChangeLog(pipeline.lake.change_log).checkpoint()
        missing = names if checkpoint is None else _without_snapshot(pipeline, names, checkpoint)
        # a followed table that has lost its key stops alone, later; a new one must not enter the publication
        usable_facts(connection, missing)
        # the same holds for a column that came later; but no window is read in binary before every table can be
        before = checkpoint is not None and ("binary", "true") in checkpoint.identity.options
        require_readable(connection, pipeline.source, missing if before else names)
    checkpoint = prepare_slot(pipeline)
    return Prepared(checkpoint, names, _without_snapshot(pipeline, names, checkpoint))


def snapshot(
    spark: SparkProvider,
    pipeline: Pipeline,
    names: Sequence[QualifiedName] | None = None,
    *,
    run_id: str = "",
    progress: Progress = silent,
) -> tuple[TableSnapshot, ...]:
    """Take ``names`` (all followed tables) anew, at one LSN. A table that fails is reported, and keeps what it held.

    Raises SlotError before ``prepare``: without a slot the changes after the snapshot would be lost.
    """
    log = ChangeLog(pipeline.lake.change_log)
    checkpoint = log.checkpoint()
    if checkpoint is None:
        raise SlotError(f"there is no change log at {log.path}", hint="`postgres-cdc sync` makes slot and log")
    with connected(pipeline.source.dsn) as connection:
        wanted = followed_names(connection, pipeline) if names is None else tuple(names)
        usable_facts(connection, wanted)
    forget(pipeline.lake, wanted)

    def ordinal_at(lsn: Lsn) -> int:
        # windows landed before the snapshot was exported end at or before it
        landed = log.markers(checkpoint.ordinal - 1)
        return max(marker.ordinal for marker in landed if marker.window.hi <= lsn)

    return snapshot_tables(
        spark(),
        pipeline,
        wanted,
        system_identifier=checkpoint.identity.system_identifier,
        ordinal_at=ordinal_at,
        run_id=run_id,
        progress=progress,
    )


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
    names = tuple(name for name in prepared.tables if name not in failed)
    upto = _flushed(pipeline)
    landed: list[WindowMarker] = []
    tables: dict[QualifiedName, list[TableApplied]] = {}
    messages: MessagesApplied | None = None
    while True:
        captured = capture(pipeline, upto=upto, progress=progress)
        landed += captured.landed
        report = apply(spark, pipeline, None if not failed else names, messages=True, run_id=run_id, progress=progress)
        messages = report.messages and report.messages.after(messages)
        for outcome in report.tables:
            tables.setdefault(outcome.name, []).append(outcome)
        if captured.caught_up:
            break
    lag = _flushed(pipeline) - captured.landed_end
    outcomes = tuple(outcome for each in tables.values() for outcome in each)
    seconds = time.monotonic() - started
    return SyncReport(snapshots, tuple(landed), outcomes, report.cut, before, max(0, lag), seconds, messages)


def _without_snapshot(
    pipeline: Pipeline, names: Sequence[QualifiedName], checkpoint: WindowMarker
) -> tuple[QualifiedName, ...]:
    return tuple(name for name in names if not _has_snapshot(pipeline, name, checkpoint))


def _has_snapshot(pipeline: Pipeline, name: QualifiedName, checkpoint: WindowMarker) -> bool:
    identity = checkpoint.identity
    try:
        return table_state(pipeline.lake, name, identity.system_identifier, identity.slot) is not None
    except LakeError:
        # something is there that must not be replaced unasked: applying to it stops this table alone, with the reason
        return True


def _flushed(pipeline: Pipeline) -> Lsn:
    with connected(pipeline.source.dsn) as connection:
        return flushed_lsn(connection)
