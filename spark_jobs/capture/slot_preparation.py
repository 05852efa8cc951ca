"""Create publication, slot and the log's first marker where missing; check that log and slot belong together."""

from __future__ import annotations

from collections.abc import Sequence

from spark_jobs.capture.chapter import land_first_marker
from spark_jobs.capture.continuity import following_slot, slot_identity
from spark_jobs.capture.slot_owner import note_owner, require_own_slot
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.errors import BreakError, SlotError
from spark_jobs.lake.drop_mark import landed_end
from spark_jobs.logicalrep.lsn import Window
from spark_jobs.postgres.flushed_wal import source_time
from spark_jobs.postgres.locks import slot_lock
from spark_jobs.postgres.privileges import require_slot_possible
from spark_jobs.postgres.slot import Slot, create_slot, readable_slot, require_plugin
from spark_jobs.postgres.source_tables import require_tables
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.tables.at_source import AtSource
from spark_jobs.tables.selected_columns import publication_in_step, require_withheld


def prepare_slot(at_source: AtSource, names: Sequence[QualifiedName]) -> WindowMarker:
    """Create publication, slot and the log's first marker where missing; returns the log's last marker.

    ``names`` are the lake's tables that can be followed. A publication that we may alter is changed to hold exactly
    their source tables; without any it is left alone.

    The order matters: a publication must exist before the WAL that is read with it. Safe to repeat after a crash
    between any two steps. Raises BreakError when the slot's next changes do not follow on the log's last window.
    """
    control, source, lake = at_source.connection, at_source.source, at_source.pipeline.lake
    relations = at_source.pipeline.relations(names)
    with slot_lock(control, source.slot):
        at_source = at_source.again()  # another process may just have created the publication, for another lake
        identity, landed = slot_identity(at_source), landed_end(lake)
        slot = _unused_slot(at_source) if landed is None else following_slot(at_source, landed, identity)
        if landed is None:
            at_source.log.create()  # before the source is touched: the lake may not be writable
        if source.has_publications and relations:
            comment = publication_in_step(at_source, relations).comment
            if comment is not None and (landed is None or comment.log_of(source.slot) is None):
                note_owner(at_source, comment)
        elif landed is None:
            require_tables(control, relations)
        require_withheld(at_source)
        if landed is not None:
            return landed
        slot = slot or create_slot(control, source.slot, plugin=source.plugin)
        require_plugin(slot, identity.plugin)
        first, at = Window(slot.lsn, slot.lsn), source_time(control)
        return land_first_marker(at_source, WindowMarker(0, first, identity, tables=lake.tables, begun_at=at))


def _unused_slot(at_source: AtSource) -> Slot | None:
    """The slot that a new change log is to read; None if it does not exist, and can be created. Raises SlotError when
    the server has invalidated it, or it is read for another lake, and what ``require_slot_possible`` raises: before
    anything is created, so that a refusal leaves no trace."""
    control, name = at_source.connection, at_source.source.slot
    try:
        slot = readable_slot(control, name)
    except BreakError as error:
        hint = f"SELECT pg_drop_replication_slot('{name}'), or choose another name for source.slot"
        raise SlotError(error.what, hint=hint) from None
    if slot is None:
        require_slot_possible(control, name)
    else:
        require_own_slot(at_source)
    return slot
