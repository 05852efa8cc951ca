"""Read windows from the slot, commit them to the change log, and only then advance the slot.

Each of the three steps can be repeated, so a crash between any two of them loses nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Literal

import pyarrow as pa

from spark_jobs.capture.catalogue_look import CatalogueLook, look_at_catalogue
from spark_jobs.capture.halves import read_in_halves, worth_halving
from spark_jobs.capture.masked_tables import MaskedNow
from spark_jobs.capture.period_ends import PeriodEndsError, period_ends
from spark_jobs.capture.pgoutput.assembly import ReadWithoutError
from spark_jobs.capture.plugin import CallRead, Plugin
from spark_jobs.capture.plugins import plugin_of
from spark_jobs.capture.session import CaptureSession, capture_session
from spark_jobs.capture.transaction_spool import TransactionSpool
from spark_jobs.capture.window_landing import WindowLanding
from spark_jobs.capture.windows import fit_windows, plan_windows, windows_of_one_call
from spark_jobs.change_log.relation_versions import RelationSeen
from spark_jobs.change_log.retention import compact_log_in_passing
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import DecodeError, GapError, SourceError, SourceUnreachableError
from spark_jobs.logicalrep.lsn import Lsn, Window
from spark_jobs.postgres.flushed_wal import flushed_lsn
from spark_jobs.postgres.slot import (
    NoSpareSlotError,
    UnmappedFileError,
    advance_slot,
    peek_few,
    read_window,
    readable_slot,
    without,
)
from spark_jobs.progress import Progress, Step, silent
from spark_jobs.retries import again_when_lost
from spark_jobs.run import Run

_log = logging.getLogger(__name__)

_LITTLE_BYTES = 16 << 20  # of WAL, whose messages are then all in memory


@dataclass(frozen=True)
class CaptureReport:
    """``landed``: the windows of this run. ``upto``: the LSN that the run had to reach. ``caught_up``: the change log
    ends there or later."""

    landed: tuple[WindowMarker, ...]
    caught_up: bool
    landed_end: Lsn
    upto: Lsn


def capture(
    pipeline: Pipeline, *, upto: Lsn | None = None, max_windows: int | None = None, progress: Progress = silent
) -> CaptureReport:
    """Land the windows up to ``upto``, but not beyond the WAL that is flushed now.

    Lands at most ``max_windows`` windows, by default ``max_per_run`` of the configuration. Raises GapError, SlotError,
    SourceError, LakeError, SpoolError, DecodeError; windows landed before the error stay landed.
    """
    limits = pipeline.windows if max_windows is None else replace(pipeline.windows, max_per_run=max_windows)
    landed: list[WindowMarker] = []

    @again_when_lost
    def attempt() -> CaptureReport:
        with capture_session(pipeline) as session:
            flushed = flushed_lsn(session.control)
            end = flushed if upto is None else min(upto, flushed)
            landed_end = session.checkpoint.window.hi
            left = replace(limits, max_per_run=limits.max_per_run - len(landed))
            windows = plan_windows(landed_end, session.slot.lsn, max(end, landed_end), left)
            return _capture(session, windows, end, landed, progress)

    return attempt()


def capture_through(run: Run, lsn: Lsn) -> tuple[WindowMarker, ...]:
    """Land all windows up to ``lsn``, however many they are. Raises what ``capture`` raises."""
    landed: list[WindowMarker] = []
    while True:
        with run.capturing:
            captured = capture(run.pipeline, upto=lsn, progress=run.progress)
        landed += captured.landed
        if captured.caught_up:
            return tuple(landed)


def capture_windows(pipeline: Pipeline, windows: Sequence[Window], *, progress: Progress = silent) -> CaptureReport:
    """Land exactly these windows, except for what is already landed. Raises what ``capture`` raises, GapError when the
    windows leave changes out, and ConfigurationError when one ends beyond the WAL."""
    landed: list[WindowMarker] = []

    @again_when_lost
    def attempt() -> CaptureReport:
        with capture_session(pipeline) as session:
            landed_end = session.checkpoint.window.hi
            flushed = flushed_lsn(session.control)
            fitted = fit_windows(windows, landed_end, session.slot.lsn, flushed)
            end = max([landed_end, *(window.hi for window in windows)])
            return _capture(session, fitted, end, landed, progress)

    return attempt()


def land_window(session: CaptureSession, window: Window, *, ends: tuple[datetime, ...] = ()) -> WindowMarker:
    """Read one window and commit it to the log; the slot is not advanced.

    Returns the window's marker. The window ends earlier than asked if a day or an hour ends within it; ``ends``: those
    that are known to end with it.
    """
    try:
        (marker,) = _land(session, (window,), ends)
        return marker
    except PeriodEndsError as period_end:
        return land_window(session, Window(window.lo, period_end.lsn), ends=period_end.ends)
    except (ReadWithoutError, UnmappedFileError) as error:
        if error.option not in dict(session.identity.options):
            raise
        if error.option == "two_phase" and session.slot.two_phase:
            raise  # someone created the slot as two-phase; it may no longer send what was prepared
        _log.warning("%s; reading it again without %s", error, error.option)
        identity = replace(session.identity, options=without(session.identity.options, error.option))
        return land_window(replace(session, identity=identity), window, ends=ends)


def _land(
    session: CaptureSession, windows: Sequence[Window], ends: tuple[datetime, ...] = ()
) -> Iterator[WindowMarker]:
    """Read adjacent windows with one call of the server and commit them one by one: each is landed when its marker is
    yielded."""
    span = Window(windows[0].lo, windows[-1].hi)
    may_peek = partial(_may_peek, session, span.lo)
    if span.size <= session.pipeline.windows.peek_bytes and may_peek():
        yield from _land_through(session, windows, "peek", ends)
        return
    try:
        yield from _land_through(session, windows, "copy", ends)
    except NoSpareSlotError as error:
        if not may_peek():
            raise
        _log.warning("%s; reading the slot itself", error)
        yield from _land_through(session, windows, "peek", ends)


def _capture(
    session: CaptureSession, windows: Sequence[Window], end: Lsn, landed: list[WindowMarker], progress: Progress
) -> CaptureReport:
    """Land the windows, and append their markers to ``landed``, which already holds those of earlier attempts."""

    def show(messages: int) -> None:
        number = sum(window.hi <= landed[-1].window.hi for window in windows) if landed else 0
        progress(Step("capture", f"{windows[number]}, {messages:,} messages", number, len(windows), "windows"))

    most, session = len(windows), replace(session, on_batch=show)
    while left := _not_landed(windows, session.checkpoint.window.hi):
        show(0)
        of_one_call = _of_one_call(session, left)[:most]
        session = _landed_and_advanced(session, of_one_call, landed)
        most = 2 * most if session.checkpoint.window.hi == of_one_call[-1].hi else 1
    if ends := _ends_of_quiet_periods(session):
        end = session.checkpoint.window.hi
        session = _landed_and_advanced(session, (Window(end, end),), landed, ends)
    landed_end = session.checkpoint.window.hi
    progress(Step("capture", f"landed to {landed_end}", len(windows), len(windows), "windows"))
    return CaptureReport(tuple(landed), landed_end >= end, landed_end, end)


def _landed_and_advanced(
    session: CaptureSession, windows: Sequence[Window], landed: list[WindowMarker], ends: tuple[datetime, ...] = ()
) -> CaptureSession:
    """Land the windows of one call, or fewer. The slot advances once for all of them, since over a backlog that takes
    the server nearly as long as to pass over it once more."""
    if len(windows) == 1:
        markers = iter([land_window(session, windows[0], ends=ends)])
    else:
        markers = _land_several(session, windows)
    for marker in markers:
        landed.append(marker)
        session = replace(session, checkpoint=marker)
        compact_log_in_passing(session.at_source.log, marker.ordinal)
    advance_slot(session.control, session.identity.slot, session.checkpoint.window.hi)
    return session


def _land_several(session: CaptureSession, windows: Sequence[Window]) -> Iterator[WindowMarker]:
    """Land them, up to the first that cannot be read with others: ``land_window`` reads it, or says why it cannot."""
    _log.debug("%d windows from %s on are read with one call", len(windows), windows[0].lo)
    try:
        yield from _land(session, windows)
    except (DecodeError, PeriodEndsError, SourceError) as error:
        _log.info("%s; the windows from there on are read one by one", error)


def _not_landed(windows: Sequence[Window], landed_end: Lsn) -> tuple[Window, ...]:
    return tuple(Window(max(window.lo, landed_end), window.hi) for window in windows if window.hi > landed_end)


def _of_one_call(session: CaptureSession, windows: Sequence[Window]) -> tuple[Window, ...]:
    if len(windows) == 1 or not plugin_of(session.pipeline.source).reads_several:
        return (windows[0],)
    status = readable_slot(session.control, session.identity.slot)
    return windows_of_one_call(windows, None if status is None else status.restart_lsn)


def _ends_of_quiet_periods(session: CaptureSession) -> tuple[datetime, ...]:
    """What has ended since the last landed window, with nothing left to land."""
    ends = period_ends(session.pipeline.periods, session.checkpoint, session.clock)
    return () if ends is None or session.clock is None else ends.by_clock(session.clock, session.checkpoint.window.hi)


def _land_through(
    session: CaptureSession,
    windows: Sequence[Window],
    through: Literal["copy", "peek"],
    ends: tuple[datetime, ...],
) -> Iterator[WindowMarker]:
    # after the windows' ends are fixed: by now every table with changes in them exists, even if created since the last
    # look. Looks are later than that: seeing later DDL can cost a needless snapshot, but no DDL is missed
    session = replace(session, at_source=session.at_source.now())
    plugin, span = plugin_of(session.pipeline.source), Window(windows[0].lo, windows[-1].hi)
    masked = MaskedNow.of(session.at_source)
    look = _look(session)
    # the masked tables were read before the look: DDL since then shows in the look, or happened after the windows
    tables = masked.since(look.before, session.checkpoint) if masked is not None else None
    with (
        TransactionSpool(schema=plugin.spool_schema) as spool,
        _read(session, span, plugin, through) as printed,
    ):
        call = plugin.reader(CallRead(span.hi, session.at_source, spool, tables))
        batches = iter(printed)
        announced: dict[int, RelationSeen] = {}
        changed = set[int]()
        for window in windows:
            number = session.next_ordinal
            periods = period_ends(session.pipeline.periods, session.checkpoint, session.clock)
            periods = periods and replace(periods, ends=ends)
            reader = call.window(number, window)
            landing = WindowLanding(session, window, reader, look, tables, periods, announced, changed)
            if not session.at_source.log.land(session.identity, number, landing.rows(batches)):
                raise GapError(
                    f"window {number} is landed already: another process landed it in the meantime",
                    hint="run it again: it continues from there",
                )
            marker = landing.marker()
            yield marker
            if window.hi < span.hi:
                announced = {**announced, **{relation.relid: relation for relation in reader.relations}}
                changed |= {counts.relid for counts in marker.relations}
                session = replace(session, checkpoint=marker)
                look = _look(session)


def _look(session: CaptureSession) -> CatalogueLook:
    return look_at_catalogue(session.at_source, session.checkpoint)


def _read(
    session: CaptureSession, window: Window, plugin: Plugin, through: Literal["copy", "peek"]
) -> AbstractContextManager[Iterable[pa.RecordBatch]]:
    slot, options = session.identity.slot, session.identity.options
    if not window.size:
        return nullcontext(())
    if through == "copy" and plugin.output == "binary":
        limit = session.pipeline.windows.halved_bytes
        if worth_halving(session.control, slot, window, options, limit):
            try:
                halves = read_in_halves(session.bulk(), session.second_bulk(), slot, window, options)
                _log.debug("window %s is read in halves", window)
                return halves
            except SourceUnreachableError as error:  # no second connection could be opened
                _log.info("%s; window %s is read in one", error, window)
    elif through == "peek" and plugin.output == "binary" and _holds_little(session, window):
        return nullcontext((peek_few(session.control, slot, window, options),))
    return read_window(session.bulk(), slot, window, options, through=through, output=plugin.output)


def _holds_little(session: CaptureSession, window: Window) -> bool:
    """Whether a window can only hold transactions that began shortly before it ends, so that none is large."""
    begin = session.slot.restart_lsn
    return begin is not None and window.hi - begin <= _LITTLE_BYTES


def _may_peek(session: CaptureSession, lsn: Lsn) -> bool:
    """Whether peeking at the slot shows what a copy would: it must stand at ``lsn`` and must not be two-phase, because
    a two-phase slot sends a prepared transaction at PREPARE."""
    status = readable_slot(session.control, session.identity.slot)
    return status is not None and status.confirmed_flush_lsn == lsn and not status.two_phase
