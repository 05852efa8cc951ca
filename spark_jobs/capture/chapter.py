"""A new chapter of the change log, for when the slot's next changes do not follow on what is landed.

Window ordinals continue, LSNs start wherever the slot stands, and the first marker says what broke. Changes are applied
to a table within one chapter only, so LSNs of two chapters are never compared; in a new chapter every table needs a
snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from spark_jobs.capture.catalogue_look import look_at_catalogue
from spark_jobs.capture.continuity import slot_identity
from spark_jobs.change_log.log import catalogue_rows, marker_row
from spark_jobs.change_log.window_marker import ChapterBreak, SlotIdentity, WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import BreakError, GapError, SlotInUseError
from spark_jobs.logicalrep.lsn import Lsn, Window
from spark_jobs.postgres.connection import Connection, connected
from spark_jobs.postgres.flushed_wal import flushed_lsn, source_time
from spark_jobs.postgres.locks import slot_lock
from spark_jobs.postgres.privileges import require_slot_possible
from spark_jobs.postgres.publication import TablesLockedError
from spark_jobs.postgres.slot import Slot, advance_slot, create_slot, drop_lost_slot, readable_slot, require_plugin
from spark_jobs.postgres.source_tables import require_tables
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.retries import again_when_lost
from spark_jobs.tables.at_source import AtSource
from spark_jobs.tables.selected_columns import publication_in_step


@again_when_lost
def begin_chapter(
    pipeline: Pipeline, names: Sequence[QualifiedName], *, after: WindowMarker, what: str
) -> WindowMarker | None:
    """Begin a chapter after ``after``, which was the log's last marker when the break was found; ``what`` describes the
    break. Returns the chapter's first marker, or None, without doing anything, if a window was landed since.

    A missing slot is created, one that the server has invalidated is re-created, and any other is kept. Safe to repeat
    after a crash at any step: the break remains until the marker is landed. Raises what ``prepare_slot`` raises, but
    TablesLockedError only if all tables are locked, and SlotInUseError when another session is reading the slot.
    """
    source = pipeline.source
    with connected(source.dsn) as control, slot_lock(control, source.slot):
        at_source = AtSource(control, pipeline)
        log = at_source.log
        last = log.checkpoint()
        if last != after:
            return None
        log.require_not_set_back(after.identity)  # before the slot is moved
        now, relations = slot_identity(at_source), pipeline.relations(names)
        if source.has_publications:
            _publish(at_source, relations)
        else:
            require_tables(control, relations)
        start = _start(control, after, now)
        ordinal = after.ordinal + 1
        # commit times are of the source's clock; a standby may not know that of its primary
        at = source_time(control) or datetime.now(UTC).isoformat(timespec="seconds")
        first = WindowMarker(
            ordinal,
            Window(start, start),
            now.following(after.identity, chapter=ordinal),
            broke=ChapterBreak(what, at, after.identity, int(after.window.hi)),
            tables=pipeline.lake.tables,
        )
        return land_first_marker(at_source, first)


def _publish(at_source: AtSource, relations: Sequence[QualifiedName]) -> None:
    """Tables that are locked join the publication later. Raises TablesLockedError if all of them are."""
    try:
        publication_in_step(at_source, relations)
    except TablesLockedError as error:
        free = [relation for relation in relations if relation not in error.errors]
        if not free:
            raise
        publication_in_step(at_source, free)


def land_first_marker(at_source: AtSource, first: WindowMarker) -> WindowMarker:
    """Land ``first``, the marker of an empty window, with a look at the catalogue; returns the marker as landed."""
    look = look_at_catalogue(at_source, first)
    first = replace(first, catalogue=look.seen(first.ordinal, first.window))
    rows = [catalogue_rows(first.ordinal, first.window.lo, look.fingerprints), marker_row(first)]
    if not at_source.log.land(first.identity, first.ordinal, rows):
        raise GapError(
            f"window {first.ordinal} is landed already: another process landed it in the meantime", hint="run it again"
        )
    return first


def _start(control: Connection, after: WindowMarker, now: SlotIdentity) -> Lsn:
    """The LSN at which the chapter begins; makes sure that there is a slot to read.

    Within the same cluster the slot is advanced over what may be landed already or cannot be decoded: snapshots will
    show those changes, and logical messages would be landed twice. The slot of another cluster, or one that is ahead of
    the log, stays where it is.
    """
    slot, landed = _slot(control, now), after.identity
    same_cluster = landed.system_identifier == now.system_identifier
    is_ahead = landed.timeline == now.timeline and slot.lsn > after.window.hi
    if same_cluster and not is_ahead:
        return advance_slot(control, now.slot, flushed_lsn(control))
    return slot.lsn


def _slot(control: Connection, now: SlotIdentity) -> Slot:
    failover = False
    try:
        slot = readable_slot(control, now.slot)
    except BreakError:  # the server has invalidated it
        failover = drop_lost_slot(control, now.slot, now.plugin)
        slot = None
    if slot is None:
        require_slot_possible(control, now.slot)
        slot = create_slot(control, now.slot, plugin=now.plugin, failover=failover)
    require_plugin(slot, now.plugin)
    if slot.active_pid is not None:
        raise SlotInUseError(
            f"slot {now.slot} is being read by server process {slot.active_pid}",
            hint="stop that reader, or choose another name for source.slot; then run it again",
        )
    return slot
