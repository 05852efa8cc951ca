"""The order of steps: create what a pipeline needs, begin missing tables, capture and apply windows.

``prepare``, ``begin_generations``, ``capture`` and ``apply`` are its parts; each may be run alone, again, and after any
crash.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Event

from spark_jobs.apply.apply import CatchUpReport, apply
from spark_jobs.apply.table_applied import TableApplied
from spark_jobs.capture.capture import CaptureReport, capture
from spark_jobs.change_log.window_marker import FileMoved, WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import CdcError, SnapshotWaitsError
from spark_jobs.lake.cuts import Cut
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.postgres.flushed_wal import flushed_lsn, wait_until_flushed
from spark_jobs.postgres.open_transactions import OpenTransaction
from spark_jobs.prepare import Prepared, prepare
from spark_jobs.progress import Progress, Step, in_turns, silent
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.repair.new_generations import NewGenerations, begin_generations
from spark_jobs.repair.read_partitions import PartitionsReport
from spark_jobs.repair.repair import repair, told_to_wait
from spark_jobs.replay.change_mode import ModeChanged
from spark_jobs.retries import again_when_lost
from spark_jobs.run import Run
from spark_jobs.snapshot.exporter import IN_TURNS, Exporter, Patience
from spark_jobs.snapshot.snapshot_tables import TableSnapshot
from spark_jobs.snapshot.table_waiting import TableWaiting, tables_waiting
from spark_jobs.spark.provider import SparkProvider
from spark_jobs.tables.ledger import Ledger
from spark_jobs.tables.stopped_tables import TableStopped

_log = logging.getLogger(__name__)

# how often a table is read again at most in one sync; each round is one more cause
_ROUNDS = 2


@dataclass(frozen=True)
class SyncReport:
    """What one sync did. ``tables`` has one entry per table and round of windows that wrote or stopped something;
    ``messages`` combines all rounds of the messages table, None if there is none. ``modes``: the tables that were
    brought into another mode without a snapshot.

    ``lag_bytes`` of WAL lie between the end of the change log and what the server had flushed at the end of the sync,
    ``lag_bytes_before`` at its start; a table that stopped is in ``errors`` and does not count. ``waiting``: tables
    whose snapshot waits for a transaction of somebody else; the next sync takes it. ``shows_something``: whether any
    table has a snapshot.
    """

    snapshots: tuple[TableSnapshot, ...]
    windows: tuple[WindowMarker, ...]
    tables: tuple[TableApplied, ...]
    cut: Cut | None
    lag_bytes_before: int = field(metadata={"formerly": "lag_before"})
    lag_bytes: int = field(metadata={"formerly": "lag_after"})
    seconds: float
    messages: TableApplied | None = None
    stopped: tuple[TableStopped, ...] = ()
    modes: tuple[ModeChanged, ...] = ()
    waiting: tuple[TableWaiting, ...] = ()
    shows_something: bool = True

    @property
    def errors(self) -> tuple[CdcError, ...]:
        """One per table that stopped. To wait is none, unless no table shows anything yet: that is no success."""
        errors = {snapshot.name: snapshot.error for snapshot in self.snapshots if snapshot.error}
        errors |= {table.name: table.error for table in self.modes if table.error}
        errors |= {applied.name: applied.error for applied in self.tables if applied.error}
        errors |= {table.name: table.error for table in self.stopped}
        if self.shows_something:
            errors = {name: error for name, error in errors.items() if not isinstance(error, SnapshotWaitsError)}
        of_messages = self.messages.error if self.messages else None
        return (*errors.values(), *([of_messages] if of_messages else []))


def sync(
    pipeline: Pipeline,
    spark: SparkProvider,
    *,
    patience: Patience = IN_TURNS,
    run_id: str = "",
    progress: Progress = silent,
) -> SyncReport:
    """Bring every table to the WAL that is flushed now: prepare, begin missing generations, then window by window.

    Windows are applied ``max_per_run`` at a time, so the change log never runs far ahead of the tables. A table that
    changed in a way that cannot be applied in place is read again, once for all its changes. A table that must stop
    stops only itself. Raises CdcError for what stops all of them.
    """
    started = time.monotonic()
    done = _Done.of(prepare(pipeline))
    pipeline = done.prepared.pipeline
    with (
        Exporter(pipeline.source.dsn, patience) as exporter,
        Run(pipeline, spark, run_id=run_id, progress=in_turns(progress)).guarded() as run,
    ):
        while True:
            if done.waiting:
                done.begin(begin_generations(run, done.waiting, exporter))
            captured = _rounds(run, exporter, done)
            # once the others are up to date, there is time to read on, or to wait for the snapshot a little longer
            if not (done.goes_on or (done.waits and exporter.is_worth_waiting_for)):
                break
        lag = max(0, _flushed(run) - captured.landed_end)
    return done.report(exporter.waits_for, lag, time.monotonic() - started)


def _rounds(run: Run, exporter: Exporter, done: _Done) -> CaptureReport:
    """Bring the tables that can go on to the WAL that is flushed now; those that changed in between are read again."""
    done.partly_waiting.clear()
    for _ in range(_ROUNDS):
        captured = _follow(run, done)
        repaired = repair(run, done.to_repair(), exporter)
        done.add_partitions(repaired.partly)
        if not repaired.begun.names and done.partly_waiting.issuperset(table.name for table in repaired.partly.tables):
            return captured
        # a table may change while it is read: then the next round reads it once more
        if repaired.begun.names:
            done.begin(repaired.begun)
    return _follow(run, done)


def _follow(run: Run, done: _Done) -> CaptureReport:
    """Capture and apply up to the WAL that is flushed now. While windows are applied, the next ones are captured.

    If a table's file was moved, and the change log does not yet reach what may explain it, one more round follows;
    otherwise the table would be read again only by the next sync.
    """
    waited = False
    with _capturing(run.pipeline, run.progress) as begin_capture:
        capturing = begin_capture(None)
        while True:
            captured = capturing.result()
            done.landed(captured)
            upto = captured.upto
            if not captured.caught_up:
                capturing = begin_capture(upto)
            excluding = {*done.failed, *done.waiting, *done.partly_waiting}
            # a table that waits for its snapshot may be large
            uncaptured = None if done.waiting else max(0, upto - captured.landed_end)
            done.add(apply(run, excluding=excluding, ledger=done.ledger_after(captured), uncaptured=uncaptured))
            if captured.caught_up:
                moved = done.not_explained(captured)
                if not moved:
                    return captured
                if waited:
                    names = ", ".join(sorted({str(file.table.name) for file in moved}))
                    _log.warning("the next sync will tell whether %s needs a re-snapshot: it has a new file", names)
                    return captured
                upto, waited = _flushed_beyond(run, max(file.until for file in moved)), True
                capturing = begin_capture(upto)


@contextmanager
def _capturing(pipeline: Pipeline, progress: Progress) -> Iterator[Callable[[Lsn | None], Future[CaptureReport]]]:
    """Captures up to an LSN, by default to the WAL that is flushed then, in a thread, which an error or an interrupt of
    the block ends at its next messages."""
    ended = Event()

    def shown(step: Step) -> None:
        if ended.is_set():
            raise CancelledError
        progress(step)

    with ThreadPoolExecutor(1, thread_name_prefix="capture") as thread:
        try:
            yield lambda upto: thread.submit(capture, pipeline, upto=upto, progress=shown)
        except BaseException:
            ended.set()
            raise


@again_when_lost
def _flushed_beyond(run: Run, lsn: int) -> Lsn:
    with run.source() as connection:
        return wait_until_flushed(connection, lsn)


@dataclass
class _Done:
    """What one sync has done so far. ``last``: the log's newest marker that it knows. ``ledger``: how far log and
    tables are, until a table is written. ``waiting``: tables whose snapshot is still to be taken, each with its reason.
    ``failed`` ones are not tried again. ``goes_on``: the snapshot of some of them is read in part. ``partly_waiting``:
    tables of which partitions wait for a snapshot."""

    prepared: Prepared
    last: WindowMarker
    ledger: Ledger | None
    waiting: Mapping[QualifiedName, str]
    failed: set[QualifiedName] = field(default_factory=set)
    goes_on: bool = False
    partly_waiting: set[QualifiedName] = field(default_factory=set)
    begun: NewGenerations = field(default_factory=NewGenerations)
    windows: list[WindowMarker] = field(default_factory=list)
    tables: dict[QualifiedName, list[TableApplied]] = field(default_factory=dict)
    messages: TableApplied | None = None
    cut: Cut | None = None

    @classmethod
    def of(cls, prepared: Prepared) -> _Done:
        return cls(prepared, prepared.ledger.last, prepared.ledger, prepared.missing)

    def landed(self, captured: CaptureReport) -> None:
        self.windows += captured.landed
        self.last = self.windows[-1] if self.windows else self.last

    def not_explained(self, captured: CaptureReport) -> tuple[FileMoved, ...]:
        """The files of tables that were moved, and may be explained by what lies beyond the change log. If somebody
        else has landed windows, it is theirs to tell."""
        look = self.last.catalogue
        return look.moved if look is not None and self._is_last(captured) else ()

    def ledger_after(self, captured: CaptureReport) -> Ledger | None:
        """The ledger after ``captured``; None if a table was written, or somebody else has landed windows."""
        return replace(self.ledger, last=self.last) if self.ledger is not None and self._is_last(captured) else None

    def _is_last(self, captured: CaptureReport) -> bool:
        return self.last.window.hi == captured.landed_end

    def begin(self, begun: NewGenerations) -> None:
        self.ledger, self.goes_on = None, begun.goes_on
        self.begun = self.begun.then(begun)
        self.waiting = {n: why for n, why in self.waiting.items() if n not in begun.names} | begun.waiting
        self.failed |= begun.errors.keys() - self.waiting.keys()
        for name in begun.names:  # an earlier error is resolved, or is reported with the new generation
            self.tables[name] = [done for done in self.tables.get(name, ()) if done.error is None]

    def add_partitions(self, report: PartitionsReport) -> None:
        self.windows += report.windows
        for table in report.tables:
            rounds = self.tables.get(table.name, ())
            self.tables[table.name] = [*(done for done in rounds if done.error is None), table]
            if isinstance(table.error, SnapshotWaitsError):
                self.partly_waiting.add(table.name)

    def add(self, report: CatchUpReport) -> None:
        self.ledger = None
        self.messages = report.messages and report.messages.after(self.messages)
        self.cut = report.cut
        for outcome in report.tables:
            self.tables.setdefault(outcome.name, []).append(outcome)

    @property
    def waits(self) -> bool:
        """Whether a table, or partitions of one, wait for a snapshot."""
        return bool(self.waiting or self.partly_waiting)

    def to_repair(self) -> tuple[TableApplied, ...]:
        """The tables whose last outcome is an error, except those that cannot be read."""
        stopped = {table.name for table in self.prepared.stopped}
        last = (rounds[-1] for rounds in self.tables.values() if rounds)
        return tuple(done for done in last if done.error is not None and done.name not in stopped)

    def report(self, transaction: OpenTransaction | None, lag_bytes: int, seconds: float) -> SyncReport:
        prepared = self.prepared
        tables = tuple(replace(done, error=told_to_wait(done)) for rounds in self.tables.values() for done in rounds)
        errors = {**self.begun.errors, **{done.name: done.error for done in tables}}
        return SyncReport(
            self.begun.snapshots,
            tuple(self.windows),
            tables,
            self.cut,
            prepared.flushed - prepared.ledger.last.window.hi,
            lag_bytes,
            seconds,
            self.messages,
            prepared.stopped,
            self.begun.modes,
            tables_waiting(errors, transaction),
            bool(prepared.ledger.states) or any(snapshot.error is None for snapshot in self.begun.snapshots),
        )


@again_when_lost
def _flushed(run: Run) -> Lsn:
    with run.source() as connection:
        return flushed_lsn(connection)
