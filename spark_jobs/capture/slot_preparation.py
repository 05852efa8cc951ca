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
from spark_jobs.postgres.connection import Connection
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
    control, pipeline, source = at_source.connection, at_source.pipeline, at_source.source
    relations = pipeline.relations(names)
    with slot_lock(control, source.slot):
        at_source = at_source.again()  # another process may just have created the publication, for another lake
        identity = slot_identity(at_source)
        checkpoint = landed_end(pipeline.lake)
        if checkpoint is not None:
            following_slot(at_source, checkpoint, identity)
        elif _unused_slot(control, source.slot) is None:
            require_slot_possible(control, source.slot)  # before anything is created: a refusal leaves no trace
        else:
            require_own_slot(at_source)
        if checkpoint is None:
            at_source.log.create()  # before the source is touched: the lake may not be writable
        if source.has_publications and relations:
            comment = publication_in_step(at_source, relations).comment
            if comment is not None and (checkpoint is None or comment.log_of(source.slot) is None):
                note_owner(at_source, comment)
        elif checkpoint is None:
            require_tables(control, relations)
        require_withheld(at_source)
        if checkpoint is not None:
            return checkpoint
        slot = _unused_slot(control, source.slot) or create_slot(control, source.slot, plugin=source.plugin)
        require_plugin(slot, identity.plugin)
        start = slot.lsn
        first = WindowMarker(0, Window(start, start), identity, tables=pipeline.lake.tables)
        return land_first_marker(at_source, first)


def _unused_slot(control: Connection, slot: str) -> Slot | None:
    """The status of a slot that has no change log yet; None if it does not exist. Raises SlotError when the server has
    invalidated it."""
    try:
        return readable_slot(control, slot)
    except BreakError as error:
        hint = f"SELECT pg_drop_replication_slot('{slot}'), or choose another name for source.slot"
        raise SlotError(error.what, hint=hint) from None
