"""Read windows from the slot, commit them to the change log, and only then advance the slot.

Each of the three steps can be repeated, so a crash between any two of them loses nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from typing import Literal

import pyarrow as pa
from adbc_driver_postgresql import dbapi

from spark_jobs.capture.catalogue_look import CatalogueLook, look_at_catalogue
from spark_jobs.capture.continuity import following_slot, slot_identity
from spark_jobs.capture.halves import read_in_halves, worth_halving
from spark_jobs.capture.landed_again import check_landed_again
from spark_jobs.capture.leaf_announcements import identities_for_a_time
from spark_jobs.capture.masked_tables import MaskedNow, masked_alike
from spark_jobs.capture.period_ends import PeriodEnds, PeriodEndsError, period_ends
from spark_jobs.capture.pgoutput.assembly import ReadWithoutError
from spark_jobs.capture.plugin import Plugin, WindowRead, WindowReader
from spark_jobs.capture.plugins import plugin_of
from spark_jobs.capture.subtransactions import truncating_subtransactions
from spark_jobs.capture.transaction_spool import TransactionSpool
from spark_jobs.capture.windows import fit_windows, plan_windows
from spark_jobs.change_log.log import ChangeLog, catalogue_rows, changed_facts_rows, facts_rows, marker_row
from spark_jobs.change_log.retention import compact_log_in_passing
from spark_jobs.change_log.window_marker import SlotIdentity, WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import GapError, SlotError, SourceUnreachableError
from spark_jobs.lake.drop_mark import landed_end
from spark_jobs.logicalrep.lsn import Lsn, Window
from spark_jobs.postgres.bulk_read import bulk_connection
from spark_jobs.postgres.catalogue import relation_facts
from spark_jobs.postgres.connection import Connection, connected, conninfo
from spark_jobs.postgres.locks import slot_lock
from spark_jobs.postgres.slot import (
    NoSpareSlotError,
    SlotStatus,
    SourceClock,
    advance_slot,
    flushed_lsn,
    read_window,
    slot_status,
    source_clock,
    without,
)
from spark_jobs.progress import Progress, Step, silent
from spark_jobs.retries import again_when_lost
from spark_jobs.tables.followed_tables import followed_lines
from spark_jobs.tables.matching_tables import refreshed
from spark_jobs.tables.selected_columns import require_withheld

__all__ = [
    "CaptureReport",
    "CaptureSession",
    "advance",
    "capture",
    "capture_session",
    "capture_windows",
    "land_window",
]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CaptureReport:
    """``landed``: the windows of this run. ``upto``: the LSN that the run had to reach. ``caught_up``: the change log
    ends there or later."""

    landed: tuple[WindowMarker, ...]
    caught_up: bool
    landed_end: Lsn
    upto: Lsn


@dataclass(frozen=True)
class CaptureSession:
    """The connections and the state that capturing needs. ``bulk`` connects with its first call, and
    so does ``beside``, for the second half of a large window. ``checkpoint`` is the log's last marker. ``clock``: of a
    pipeline with time partitions."""

    pipeline: Pipeline
    control: Connection
    bulk: Callable[[], dbapi.Connection]
    beside: Callable[[], dbapi.Connection]
    log: ChangeLog
    identity: SlotIdentity
    checkpoint: WindowMarker
    slot: SlotStatus
    clock: SourceClock | None = None


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
            windows = plan_windows(landed_end, session.slot.confirmed_flush_lsn, max(end, landed_end), left)
            return _capture(session, windows, end, landed, progress)

    return attempt()


def capture_through(
    pipeline: Pipeline, lsn: Lsn, capturing: AbstractContextManager[object], *, progress: Progress = silent
) -> tuple[WindowMarker, ...]:
    """Land all windows up to ``lsn``, however many they are. ``capturing`` is held while some are landed, as another
    thread of this process may land windows too. Raises what ``capture`` raises."""
    landed: list[WindowMarker] = []
    while True:
        with capturing:
            captured = capture(pipeline, upto=lsn, progress=progress)
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
            fitted = fit_windows(windows, landed_end, session.slot.confirmed_flush_lsn, flushed)
            end = max([landed_end, *(window.hi for window in windows)])
            return _capture(session, fitted, end, landed, progress)

    return attempt()


@contextmanager
def capture_session(pipeline: Pipeline) -> Iterator[CaptureSession]:
    """Connect, take the slot's lock and check that log and slot belong together. Advances a slot behind the log."""
    source = pipeline.source
    log = ChangeLog(pipeline.lake.change_log)
    with connected(source.dsn) as control, slot_lock(control, source.slot):
        checkpoint = landed_end(pipeline.lake)
        if checkpoint is None:
            raise SlotError(
                f"there is no change log yet for slot {source.slot}",
                hint="`postgres-cdc sync` creates the slot and the change log",
            )
        identity = slot_identity(control, pipeline).following(checkpoint.identity)
        pipeline = refreshed(control, pipeline)
        require_withheld(control, pipeline)
        MaskedNow.of(control, pipeline)  # only to raise before anything is read
        slot = following_slot(control, pipeline, checkpoint, identity)
        with ExitStack() as connections:
            # half the time of a run that finds no window
            bulk, beside = (
                cache(lambda: connections.enter_context(bulk_connection(conninfo(source.dsn)))) for _ in range(2)
            )
            if slot.confirmed_flush_lsn < checkpoint.window.hi:
                # a crash of ours between landing and advancing, or a crash of the server that lost the advance
                check_landed_again(control, bulk(), pipeline, checkpoint, slot)
                slot = replace(slot, confirmed_flush_lsn=advance_slot(control, source.slot, checkpoint.window.hi))
            clock = source_clock(control) if pipeline.periods else None
            yield CaptureSession(pipeline, control, bulk, beside, log, identity, checkpoint, slot, clock)


def land_window(
    session: CaptureSession,
    ordinal: int,
    window: Window,
    *,
    on_batch: Callable[[int], None],
    ends: tuple[datetime, ...] = (),
) -> WindowMarker:
    """Read one window and commit it to the log; the slot is not advanced.

    ``on_batch`` is called after each batch with the number of messages so far. Returns the window's marker. The window
    ends earlier than asked if a day or an hour ends within it; ``ends``: those that are known to end with it.
    """
    try:
        return _land(session, ordinal, window, on_batch, ends)
    except PeriodEndsError as found:
        return land_window(session, ordinal, Window(window.lo, found.lsn), on_batch=on_batch, ends=found.ends)
    except ReadWithoutError as error:
        if error.option == "two_phase" and session.slot.two_phase:
            raise  # someone created the slot as two-phase; it may no longer send what was prepared
        _log.warning("%s; reading it again that way", error)
        identity = replace(session.identity, options=without(session.identity.options, error.option))
        return land_window(replace(session, identity=identity), ordinal, window, on_batch=on_batch, ends=ends)


def _land(
    session: CaptureSession,
    ordinal: int,
    window: Window,
    on_batch: Callable[[int], None],
    ends: tuple[datetime, ...],
) -> WindowMarker:
    small = window.size <= session.pipeline.windows.peek_bytes
    if small and _may_peek(session, window.lo):
        return _land_through(session, ordinal, window, "peek", on_batch, ends)
    try:
        return _land_through(session, ordinal, window, "copy", on_batch, ends)
    except NoSpareSlotError as error:
        if not _may_peek(session, window.lo):
            raise
        _log.warning("%s; reading the slot itself", error)
        return _land_through(session, ordinal, window, "peek", on_batch, ends)


def advance(session: CaptureSession, marker: WindowMarker) -> Lsn:
    """Advance the slot to the end of a landed window; returns its new ``confirmed_flush_lsn``."""
    return advance_slot(session.control, session.identity.slot, marker.window.hi)


def _capture(
    session: CaptureSession, windows: Sequence[Window], end: Lsn, landed: list[WindowMarker], progress: Progress
) -> CaptureReport:
    """Land the windows, and append their markers to ``landed``, which already holds those of earlier attempts."""
    for number, window in enumerate(windows):

        def show(messages: int, number: int = number, window: Window = window) -> None:
            progress(Step("capture", f"{window}, {messages:,} messages", number, len(windows), "windows"))

        show(0)
        while session.checkpoint.window.hi < window.hi:
            part = Window(session.checkpoint.window.hi, window.hi)
            session = _landed_and_advanced(session, part, landed, on_batch=show)
    if ends := _ends_of_quiet_periods(session):
        end = session.checkpoint.window.hi
        session = _landed_and_advanced(session, Window(end, end), landed, on_batch=lambda _: None, ends=ends)
    landed_end = session.checkpoint.window.hi
    progress(Step("capture", f"landed to {landed_end}", len(windows), len(windows), "windows"))
    return CaptureReport(tuple(landed), landed_end >= end, landed_end, end)


def _landed_and_advanced(
    session: CaptureSession,
    window: Window,
    landed: list[WindowMarker],
    *,
    on_batch: Callable[[int], None],
    ends: tuple[datetime, ...] = (),
) -> CaptureSession:
    marker = land_window(session, session.checkpoint.ordinal + 1, window, on_batch=on_batch, ends=ends)
    landed.append(marker)
    advance(session, marker)
    compact_log_in_passing(session.log, marker.ordinal)
    return replace(session, checkpoint=marker)


def _ends_of_quiet_periods(session: CaptureSession) -> tuple[datetime, ...]:
    """What has ended since the last landed window, with nothing left to land."""
    ends = period_ends(session.pipeline.periods, session.checkpoint, session.clock)
    return () if ends is None or session.clock is None else ends.by_clock(session.clock, session.checkpoint.window.hi)


def _land_through(
    session: CaptureSession,
    ordinal: int,
    window: Window,
    through: Literal["copy", "peek"],
    on_batch: Callable[[int], None],
    ends: tuple[datetime, ...],
) -> WindowMarker:
    # after the window's end is fixed: by now every table with changes in it exists, even if created since the last look
    session = replace(session, pipeline=refreshed(session.control, session.pipeline))
    identity, plugin = session.identity, plugin_of(session.pipeline.source)
    keys, masks = session.pipeline.declared_keys, session.pipeline.masks
    masked = MaskedNow.of(session.control, session.pipeline)
    # after the window's end is fixed: seeing later DDL can cost a needless snapshot, but no DDL is missed
    look = look_at_catalogue(session.control, session.pipeline, session.checkpoint, session.log)
    # the masked tables were read before the look: DDL since then shows in the look, or happened after the window
    tables = masked.since(look.before, session.log, session.checkpoint) if masked is not None else None
    periods = period_ends(session.pipeline.periods, session.checkpoint, session.clock)
    if periods is not None:
        periods = replace(periods, ends=ends)

    def marker() -> WindowMarker:
        return _marker(session, ordinal, window, reader, look, periods)

    with (
        TransactionSpool(schema=plugin.spool_schema) as spool,
        _read(session, window, plugin, through) as printed,
    ):
        reader = plugin.reader(WindowRead(ordinal, window, session.pipeline, session.control, spool, tables))

        def rows() -> Iterator[pa.RecordBatch]:
            if look.fingerprints:
                yield catalogue_rows(ordinal, window.lo, look.fingerprints)
            if look.facts:
                yield changed_facts_rows(ordinal, window.hi, masked_alike(look.facts, tables))
            for batch in reader.rows(printed):
                if periods is not None:
                    periods.look_at(batch)
                look.note_truncates(batch)
                yield batch
                on_batch(reader.messages)
            if look.is_truncated_by_others:
                look.note_subtransactions(
                    truncating_subtransactions(session.control, identity.slot, window.hi, identity.options)
                )
            relids = sorted({seen.relid for seen in reader.relations})
            if relids:
                facts = relation_facts(session.control, relids=relids, keys=keys, masks=masks)
                look.note_reasons(identities_for_a_time(session.control, look.relids, reader.relations, facts))
                yield facts_rows(ordinal, reader.relations, masked_alike(facts, tables))
            yield marker_row(marker())

        if not session.log.land(identity, ordinal, rows()):
            raise GapError(
                f"window {ordinal} is landed already: another process landed it in the meantime",
                hint="run it again: it continues from there",
            )
    return marker()


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
                halves = read_in_halves(session.bulk(), session.beside(), slot, window, options)
                _log.debug("window %s is read in halves", window)
                return halves
            except SourceUnreachableError as error:  # no second connection could be opened
                _log.info("%s; window %s is read in one", error, window)
    return read_window(session.bulk(), slot, window, options, through=through, output=plugin.output)


def _marker(
    session: CaptureSession,
    ordinal: int,
    window: Window,
    reader: WindowReader,
    look: CatalogueLook,
    periods: PeriodEnds | None,
) -> WindowMarker:
    if periods is not None and session.clock is not None:
        periods = periods.ending(session.clock, window.hi)
    return WindowMarker(
        ordinal=ordinal,
        window=window,
        identity=session.identity,
        relations=reader.relation_counts(),
        transactions=reader.transactions,
        messages=reader.messages,
        bytes=reader.bytes,
        logical_messages=reader.logical_messages,
        unknown=reader.unknown,
        followed=followed_lines(session.pipeline, session.checkpoint),
        catalogue=look.seen(ordinal, window),
        tables=session.pipeline.lake.tables,
        periods=periods.seen if periods is not None else None,
    )


def _may_peek(session: CaptureSession, lsn: Lsn) -> bool:
    """Whether peeking at the slot shows what a copy would: it must stand at ``lsn`` and must not be two-phase, because
    a two-phase slot sends a prepared transaction at PREPARE."""
    status = slot_status(session.control, session.identity.slot)
    return status is not None and status.confirmed_flush_lsn == lsn and not status.two_phase
