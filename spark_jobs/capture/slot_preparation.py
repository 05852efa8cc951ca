"""Publication, slot and the log's first marker, made where missing; and whether log and slot belong together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spark_jobs.capture.catalogue_look import look_at_catalogue
from spark_jobs.capture.plugins import OF_THE_LOG, plugin_options
from spark_jobs.change_log.log import ChangeLog, catalogue_rows, marker_row
from spark_jobs.change_log.window_marker import SlotIdentity, WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import GapError, SlotError
from spark_jobs.logicalrep.lsn import Window
from spark_jobs.postgres.catalogue import facts_by_name
from spark_jobs.postgres.connection import Connection, connected
from spark_jobs.postgres.health import server_identity
from spark_jobs.postgres.locks import slot_lock
from spark_jobs.postgres.privileges import require_slot_possible, slot_exists
from spark_jobs.postgres.publication import ensure_publications
from spark_jobs.postgres.slot import SlotStatus, create_slot, missing_slot, slot_status
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.tables.followed_tables import configured_names


def prepare_slot(pipeline: Pipeline, names: Sequence[QualifiedName] | None = None) -> WindowMarker:
    """Make publication, slot and the log's first marker where missing; returns the log's last marker.

    ``names`` are the tables that can be followed, by default those of the configuration; a publication that is ours
    is made to hold these. None at all leave it as it is.

    In this order: a publication must exist before the WAL that is read with it. Safe to repeat after a crash between
    any two. Raises GapError when the log has windows but the slot is gone.
    """
    source = pipeline.source
    log = ChangeLog(pipeline.lake.change_log)
    if names is None:
        names = configured_names(pipeline)
    with connected(source.dsn) as control, slot_lock(control, source.slot):
        identity = slot_identity(control, pipeline)
        checkpoint = log.checkpoint()
        if checkpoint is not None:
            check_identity(checkpoint.identity, identity)
        elif not slot_exists(control, source.slot):
            require_slot_possible(control, source.slot)  # before anything is made: a refusal leaves no trace
        if checkpoint is None:
            log.create()  # first of all: a lake that cannot be written must leave the source untouched
        if source.has_publications and (names is None or names):
            ensure_publications(control, source.publications, names if pipeline.alters_publication else None)
        elif checkpoint is None:
            facts_by_name(control, names or ())
        slot = slot_status(control, source.slot)
        if slot is None and checkpoint is not None:
            raise GapError(
                f"slot {source.slot} is gone, and the change log ends at {checkpoint.window.hi}:"
                " the changes since cannot be had",
                hint="start over with a new slot and a new lake path",
            )
        if slot is None:
            create_slot(control, source.slot, plugin=source.plugin)
            slot = slot_status(control, source.slot)
        if slot is None:
            raise missing_slot(source.slot)
        check_slot(slot, identity)
        if checkpoint is not None:
            return checkpoint
        start = slot.confirmed_flush_lsn
        look = look_at_catalogue(control, pipeline, None, log)
        window = Window(start, start)
        marker = WindowMarker(0, window, identity, catalogue=look.seen(0, window))
        log.land(identity, 0, [catalogue_rows(0, start, look.fingerprints), marker_row(marker)])
        return marker


def slot_identity(control: Connection, pipeline: Pipeline) -> SlotIdentity:
    """What the windows read now will say of where they come from. Raises ConfigurationError for refused options."""
    server = server_identity(control)
    return SlotIdentity(
        system_identifier=server.system_identifier,
        timeline=server.timeline,
        database=server.database,
        slot=pipeline.source.slot,
        plugin=pipeline.source.plugin,
        options=plugin_options(pipeline.source, server.server_version),
        server_version=server.server_version,
    )


def check_identity(landed: SlotIdentity, now: SlotIdentity) -> None:
    """Raise SlotError when windows read now would not follow on the landed ones."""
    start_over = "point the configuration back, or start over with a new slot and a new lake path"
    for what, before, after in (
        ("cluster (system identifier)", landed.system_identifier, now.system_identifier),
        ("database", landed.database, now.database),
        ("slot", landed.slot, now.slot),
        ("output plugin", landed.plugin, now.plugin),
        *_options_of_the_log(landed, now),
    ):
        if before != after:
            raise SlotError(f"the change log is of another {what}: it has {before}, now it is {after}", hint=start_over)
    if landed.timeline != now.timeline:
        raise SlotError(
            f"the server is on timeline {now.timeline}, the change log was read on timeline {landed.timeline}:"
            " it was restored, or a standby was promoted, and may have lost changes that are landed",
            hint="start over with a new slot and a new lake path",
        )


def _options_of_the_log(landed: SlotIdentity, now: SlotIdentity) -> Iterator[tuple[str, object, object]]:
    """Those that say which changes come; the others may change between two windows."""
    before, after = dict(landed.options), dict(now.options)
    for name, default in OF_THE_LOG.items():
        yield f"plugin option {name}", before.get(name, default), after.get(name, default)


def check_slot(slot: SlotStatus, identity: SlotIdentity) -> None:
    """Raise SlotError when the slot was made for another plugin."""
    if slot.plugin != identity.plugin:
        raise SlotError(
            f"slot {slot.slot_name} uses the output plugin {slot.plugin}, the configuration says {identity.plugin}",
            hint="correct source.plugin (pgoutput and test_decoding are read), or choose another name for source.slot",
        )
