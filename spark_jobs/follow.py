"""Follow the source all day in one process: windows are captured and applied as they come, with one Spark session.

One thread captures, once per interval: it lands what is there and lets the slot advance, whatever Spark is doing. The
other one applies all that is landed, as soon as the first has caught up. While it has not, or fails, that one goes on
nevertheless.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from spark_jobs.apply.apply import CatchUpReport
from spark_jobs.apply.table_applied import TableApplied
from spark_jobs.capture.capture import capture
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import CdcError, ConfigurationError, SnapshotGoesOnError, SnapshotWaitsError
from spark_jobs.lake.messages_state import MESSAGES_NAME, has_messages_table
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.postgres.connection import connected
from spark_jobs.postgres.flushed_wal import flushed_lsn
from spark_jobs.prepare import prepare
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.repair.new_generations import NewGenerations, begin_generations
from spark_jobs.repair.repair import apply_and_repair
from spark_jobs.replay.change_mode import ModeChanged
from spark_jobs.run import Run
from spark_jobs.snapshot.exporter import IN_ROUNDS, Exporter
from spark_jobs.snapshot.table_waiting import TableWaiting, tables_waiting
from spark_jobs.spark.provider import SparkProvider

# how long a failed piece of work is left alone: doubled with each failure in a row
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 300.0
# after so many intervals what is landed is applied although capturing has not caught up
_BEHIND = 1.5
# how often, in seconds, to look for tables that were added to the publication
_PREPARE_EVERY = 60.0


@dataclass(frozen=True)
class FollowRound:
    """What one round did: ``windows`` were landed since the round before, ``applied`` tables got a commit.

    ``lag_bytes``: WAL that the tables do not show yet, up to the server's flushed LSN at ``lag_asked_at``, when the
    server was last asked for it. ``lag_seconds``: the tables show everything that was committed that long ago or
    earlier. All three are None until the tables have first reached an LSN that the server reported. ``is_last``: the
    round after the order to stop, which asks the server once more. ``errors``: one line for each table that is stopped
    or waits for its next try, and for what stops all of them; ``hints``: what to do about each, or nothing.
    ``pipeline_errors``: those of ``errors`` that stop all of them, in capturing or in applying. ``modes``:
    the tables that were brought into another mode without a snapshot. ``waiting``: tables whose snapshot waits for a
    transaction of somebody else.
    """

    at: datetime
    seconds: float
    windows: int
    changes: int
    applied: tuple[QualifiedName, ...]
    snapshots: tuple[QualifiedName, ...]
    lag_bytes: int | None
    lag_seconds: float | None
    errors: tuple[str, ...]
    modes: tuple[ModeChanged, ...] = ()
    hints: tuple[str, ...] = ()
    waiting: tuple[TableWaiting, ...] = ()
    lag_asked_at: datetime | None = None
    is_last: bool = False
    pipeline_errors: tuple[str, ...] = ()

    @property
    def is_idle(self) -> bool:
        return not self.is_last and not (
            self.windows or self.applied or self.snapshots or self.modes or self.errors or self.waiting
        )


@dataclass
class _Pause:
    """The last error of a failed piece of work, how often it failed in a row, and when it is tried again."""

    error: CdcError
    failures: int = 0
    until: float = 0.0

    def again(self, error: CdcError) -> _Pause:
        pause = min(_FIRST_PAUSE * 2**self.failures, _LONGEST_PAUSE)
        return _Pause(error, min(self.failures + 1, 16), time.monotonic() + pause)

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self.until


@dataclass
class _Landed:
    """The results of the capturing thread, for the applying one."""

    windows: int = 0
    changes: int = 0
    # (the flushed LSN, when the server was asked for it): the change log holds everything up to each but the last one
    asked: list[tuple[Lsn, float]] = field(default_factory=list)
    pause: _Pause | None = None


class Follower:
    """Follows ``pipeline`` until ``stopping`` is set. What is captured by then is applied in a last round.

    ``spark`` is called in each round that has something to write, so a provider may return a new session when the last
    one has died. ``report`` is called after each round.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        spark: SparkProvider,
        *,
        every: float,
        stopping: threading.Event,
        report: Callable[[FollowRound], None],
    ) -> None:
        self._pipeline, self._spark, self._every = pipeline, spark, every
        self._stopping, self._report = stopping, report
        self._landed, self._lock = _Landed(), threading.Lock()
        self._captured = threading.Event()  # capturing has caught up, has failed or has ended
        self._slot = threading.Lock()  # preparing and capturing both take the slot's advisory lock in the source
        self._exporter = Exporter(pipeline.source.dsn, IN_ROUNDS)
        self._waiting: dict[QualifiedName, CdcError] = {}
        self._paused: dict[QualifiedName, _Pause] = {}
        self._all: _Pause | None = None
        self._names: tuple[QualifiedName, ...] = ()
        self._stopped: Mapping[QualifiedName, CdcError] = {}
        self._missing: Mapping[QualifiedName, str] = {}
        self._prepared_at: float | None = None
        self._shown: Lsn | None = None

    def run(self) -> None:
        """Raises a ConfigurationError of the applying thread, and any error that is not a CdcError (a defect). All
        other errors are retried."""
        defects: list[BaseException] = []
        capturing = threading.Thread(target=self._capture_on, args=(defects,), name="capture", daemon=True)
        try:
            while not self._stopping.is_set():
                started = time.monotonic()
                self._report(self._round(started))
                if capturing.ident is None and self._prepared_at is not None:  # it was not started yet
                    capturing.start()
                if defects:
                    raise defects[0]
                self._wait(started, capturing)
            if capturing.is_alive():
                capturing.join()
            if self._prepared_at is not None:
                self._ask_again()
                self._report(self._round(time.monotonic(), is_last=True))
        finally:
            self._stopping.set()
            if capturing.is_alive():
                capturing.join()
            self._exporter.close()

    def _wait(self, started: float, capturing: threading.Thread) -> None:
        """In step with the capturing thread: rounds of a clock of their own would begin when what is landed is already
        half an interval old."""
        if capturing.is_alive():
            self._captured.wait(max(0.0, started + _BEHIND * self._every - time.monotonic()))
            self._captured.clear()
        else:
            self._stopping.wait(max(0.0, started + self._every - time.monotonic()))

    def _capture_on(self, defects: list[BaseException]) -> None:
        """The capturing thread; it does not pause while the change log is behind."""
        try:
            while not self._stopping.is_set():
                started = time.monotonic()
                caught_up = self._capture()
                pause = self._landed.pause
                if caught_up or pause is not None:
                    self._captured.set()
                    until = started + self._every if pause is None else pause.until
                    self._stopping.wait(max(0.0, until - time.monotonic()))
        except BaseException as error:  # noqa: BLE001 - raised by the other thread
            defects.append(error)
        finally:
            self._captured.set()

    def _capture(self) -> bool:
        moment = time.monotonic()
        try:
            with self._slot:
                done = capture(self._pipeline)
        except ConfigurationError:
            raise
        except CdcError as error:
            with self._lock:
                self._landed.pause = (self._landed.pause or _Pause(error)).again(error)
            return True
        with self._lock:
            self._landed.pause = None
            self._landed.windows += len(done.landed)
            self._landed.changes += sum(marker.changes for marker in done.landed)
            if done.caught_up:
                self._landed.asked.append((done.upto, moment))
        return done.caught_up

    def _ask_again(self) -> None:
        """How far the source is, so that the last round says what is not captured."""
        moment = time.monotonic()
        try:
            with connected(self._pipeline.source.dsn) as connection:
                flushed = flushed_lsn(connection)
        except CdcError:  # the last round's figure is then of the last look, and says of when
            return
        with self._lock:
            self._landed.asked.append((flushed, moment))

    def _round(self, started: float, *, is_last: bool = False) -> FollowRound:
        begun = NewGenerations()
        report: CatchUpReport | None = None
        if self._all is None or self._all.is_over:
            try:
                begun, report = self._work()
                self._all = None
            except ConfigurationError:
                raise
            except CdcError as error:
                self._all = (self._all or _Pause(error)).again(error)
        return replace(self._done(started, begun, report), is_last=is_last)

    def _work(self) -> tuple[NewGenerations, CatchUpReport]:
        if self._prepared_at is None or time.monotonic() - self._prepared_at >= _PREPARE_EVERY:
            self._prepare()
        with Run(self._pipeline, self._spark, capturing=self._slot).guarded() as run:
            return self._begin_and_apply(run)

    def _begin_and_apply(self, run: Run) -> tuple[NewGenerations, CatchUpReport]:
        missing = {name: why for name, why in self._missing.items() if self._may_try(name)}
        begun = begin_generations(run, missing, self._exporter)
        failed = begun.errors
        self._note({name: failed.get(name) for name in missing})
        self._missing = {n: why for n, why in self._missing.items() if n not in missing or n in failed}
        names = [name for name in self._names if name not in self._missing and self._may_try(name)]
        waiting = [name for name in self._names if name not in names]
        names += [MESSAGES_NAME] if has_messages_table(run.pipeline) else []
        report, again = apply_and_repair(run, names, exporter=self._exporter, excluding=waiting)
        self._note({applied.name: applied.error for applied in report.tables})
        return begun.then(again), report

    def _prepare(self) -> None:
        with self._slot:
            prepared = prepare(self._pipeline)
            self._pipeline = prepared.pipeline
        self._stopped = {table.name: table.error for table in prepared.stopped}
        self._names, self._missing = (*prepared.tables, *self._stopped), prepared.missing
        self._prepared_at = time.monotonic()
        self._paused = {name: pause for name, pause in self._paused.items() if name in self._names}
        self._waiting = {name: error for name, error in self._waiting.items() if name in self._names}

    def _may_try(self, name: QualifiedName) -> bool:
        waits = self._waiting.get(name)
        if waits is not None and not isinstance(waits, SnapshotGoesOnError) and self._exporter.is_waiting:
            return False
        pause = self._paused.get(name)
        return pause is None or pause.is_over

    def _note(self, outcomes: Mapping[QualifiedName, CdcError | None]) -> None:
        for name, error in outcomes.items():
            self._waiting.pop(name, None)
            if isinstance(error, SnapshotWaitsError):
                self._waiting[name] = error
            elif error is None:
                self._paused.pop(name, None)
            else:
                self._paused[name] = self._paused.get(name, _Pause(error)).again(error)

    def _tables_waiting(self) -> tuple[TableWaiting, ...]:
        if not self._waiting:
            return ()
        try:
            return tables_waiting(self._waiting, self._exporter.look_again())
        except CdcError:  # the session was lost: the next round that asks for the snapshot says so
            return tables_waiting(self._waiting, None)

    def _done(self, started: float, begun: NewGenerations, report: CatchUpReport | None) -> FollowRound:
        tables: Sequence[TableApplied] = report.tables if report is not None else ()
        if report is not None and report.cut is not None:
            self._shown = report.cut.lsn
        with self._lock:
            windows, changes, capture_pause = self._landed.windows, self._landed.changes, self._landed.pause
            self._landed.windows = self._landed.changes = 0
            lag_bytes, reached_at, asked_at = self._lag()
        of_all = [pause.error for pause in (self._all, capture_pause) if pause is not None]
        errors = [*of_all, *self._stopped.values()]
        errors += [pause.error for name, pause in self._paused.items() if name not in self._stopped]
        now = time.monotonic()
        return FollowRound(
            datetime.now(UTC),
            now - started,
            windows,
            changes,
            tuple(applied.name for applied in tables if applied.outcome == "applied"),
            tuple(table.name for table in begun.snapshots if table.error is None),
            lag_bytes,
            None if reached_at is None else now - reached_at,
            tuple(error.what for error in errors),
            tuple(table for table in begun.modes if table.error is None),
            tuple(error.hint for error in errors),
            self._tables_waiting(),
            None if asked_at is None else datetime.now(UTC) - timedelta(seconds=now - asked_at),
            pipeline_errors=tuple(error.what for error in of_all),
        )

    def _lag(self) -> tuple[int, float, float] | tuple[None, None, None]:
        """Bytes of WAL that the tables do not show, when the server reported the last LSN that they show, and when it
        was last asked."""
        answers, shown = self._landed.asked, self._shown
        reached = [when for lsn, when in answers if shown is not None and lsn <= shown]
        if shown is None or not reached:
            return None, None, None
        self._landed.asked = [(lsn, when) for lsn, when in answers if when >= reached[-1]]  # older ones are not needed
        return max(0, answers[-1][0] - shown), reached[-1], answers[-1][1]


__all__ = ["FollowRound", "Follower"]
