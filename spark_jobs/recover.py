"""Recovers a pipeline whose slot no longer continues its change log: a new chapter of the log, new snapshots.

It handles what ``prepare`` and ``capture`` refuse with a BreakError, and nothing else. Each table is readable as it was
until the one commit of its new snapshot. If ``recover`` is killed at any step, run it again: before the chapter's
marker is landed the break is still there; after it, the tables of an earlier chapter are found by their own state, by
``sync`` too.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from spark_jobs.capture.capture import capture
from spark_jobs.capture.chapter import begin_chapter
from spark_jobs.capture.continuity import nothing_to_recover
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import BreakError, CdcError
from spark_jobs.lake.drop_mark import landed_end, refuse_half_removed
from spark_jobs.postgres.connection import connected
from spark_jobs.prepare import prepare
from spark_jobs.progress import Progress, silent
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.repair.new_generations import NewGenerations, begin_generations
from spark_jobs.replay.change_mode import ModeChanged
from spark_jobs.retries import again_when_lost
from spark_jobs.run import Run
from spark_jobs.snapshot.exporter import BRIEF, Exporter, Patience
from spark_jobs.snapshot.snapshot_tables import TableSnapshot
from spark_jobs.snapshot.table_waiting import TableWaiting, tables_waiting
from spark_jobs.spark.provider import SparkProvider
from spark_jobs.tables.at_source import AtSource
from spark_jobs.tables.stopped_tables import TableStopped, stopped_tables


@dataclass(frozen=True)
class RecoverReport:
    """``chapter``: the marker of the new chapter, None if nothing was broken. ``snapshots``: of the tables that were of
    an earlier chapter, or had none; ``modes``: tables that were brought into another mode without a snapshot;
    ``stopped`` tables cannot be followed at present; ``waiting`` ones get their snapshot from the next ``sync``.
    """

    chapter: WindowMarker | None
    snapshots: tuple[TableSnapshot, ...]
    seconds: float
    stopped: tuple[TableStopped, ...] = ()
    modes: tuple[ModeChanged, ...] = ()
    waiting: tuple[TableWaiting, ...] = ()

    @property
    def nothing_to_do(self) -> bool:
        return self.chapter is None and not self.snapshots and not self.modes

    @property
    def errors(self) -> tuple[CdcError, ...]:
        """One per table that cannot be recovered."""
        waiting = {table.name for table in self.waiting}
        begun = NewGenerations(self.modes, self.snapshots).errors
        failed = {name: error for name, error in begun.items() if name not in waiting}
        return (*failed.values(), *(table.error for table in self.stopped))


def recover(
    pipeline: Pipeline,
    spark: SparkProvider,
    *,
    patience: Patience = BRIEF,
    run_id: str = "",
    progress: Progress = silent,
) -> RecoverReport:
    """Find out whether the slot continues the change log. If it does not, begin a new chapter and read the tables
    again. Spark is started only if a snapshot needs it.

    Raises CdcError for what a new chapter does not solve: a source that cannot be reached, a missing privilege, a
    missing publication of the user's own.
    """
    started = time.monotonic()
    refuse_half_removed(pipeline.lake)
    landed = landed_end(pipeline.lake)
    if landed is None:
        raise nothing_to_recover(pipeline)
    chapter, reasons = None, {}
    broken = _broken(pipeline)
    if broken is not None:
        pipeline, names = _followable(pipeline)
        chapter = begin_chapter(pipeline, names, after=landed, what=broken.what)
        reasons = dict.fromkeys(names, broken.what)
    prepared = prepare(pipeline)
    pipeline = prepared.pipeline
    begun = NewGenerations()
    with Exporter(pipeline.source.dsn, patience) as exporter:
        if prepared.missing:
            wanted = {name: reasons.get(name, why) for name, why in prepared.missing.items()}
            with Run(pipeline, spark, run_id=run_id, progress=progress).guarded() as run:
                begun = begin_generations(run, wanted, exporter)
    waiting = tables_waiting(begun.errors, exporter.waits_for)
    seconds = time.monotonic() - started
    return RecoverReport(chapter, begun.snapshots, seconds, prepared.stopped, begun.modes, waiting)


def _broken(pipeline: Pipeline) -> BreakError | None:
    """Only reading shows what the server cannot decode. A window that can be read is landed as usual."""
    try:
        capture(prepare(pipeline).pipeline, max_windows=1)
    except BreakError as error:
        return error
    return None


@again_when_lost
def _followable(pipeline: Pipeline) -> tuple[Pipeline, tuple[QualifiedName, ...]]:
    """The pipeline, with what its patterns match now, and the tables that can be followed. Raises the first table's
    error if there is none: it may be the wrong database."""
    with connected(pipeline.source.dsn) as connection:
        at_source = AtSource(connection, pipeline).now()
        names = at_source.followed_names()
        stopped = stopped_tables(at_source, names, ())
    halted = {table.name for table in stopped}
    if stopped and halted == set(names):
        raise stopped[0].error
    return at_source.pipeline, tuple(name for name in names if name not in halted)
