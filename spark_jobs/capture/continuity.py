"""Whether the slot's next changes follow on what is landed; checked before anything is written.

``BreakError`` means that they do not, and that running again will not help: only ``postgres-cdc recover`` does.
"""

from __future__ import annotations

from collections.abc import Iterator

from spark_jobs.capture.plugins import OF_THE_LOG, plugin_options
from spark_jobs.capture.windows import check_no_gap
from spark_jobs.change_log.window_marker import SlotIdentity, WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import RECOVER, BreakError, SlotError
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.postgres.flushed_wal import flushed_lsn
from spark_jobs.postgres.health import ServerIdentity, SlotHealth, server_identity
from spark_jobs.postgres.replication import left_timeline_at
from spark_jobs.postgres.slot import Slot, readable_slot, require_not_lost, require_plugin, require_standbys
from spark_jobs.tables.at_source import AtSource

_POINT_BACK = f"point the configuration back; where that is meant: {RECOVER}"


def slot_identity(at_source: AtSource) -> SlotIdentity:
    """The identity of windows that are read now. Raises ConfigurationError for options that plugin or server refuse."""
    server, source = server_identity(at_source.connection), at_source.source
    return SlotIdentity(
        system_identifier=server.system_identifier,
        timeline=server.timeline,
        database=server.database,
        slot=source.slot,
        plugin=source.plugin,
        options=plugin_options(source, server.server_version),
        server_version=server.server_version,
    )


def following_slot(at_source: AtSource, landed: WindowMarker, now: SlotIdentity) -> Slot:
    """The slot, when its next window follows on ``landed``. Raises BreakError when it does not, and SlotError when the
    slot uses another plugin, or could not be read now."""
    check_identity(at_source.pipeline, landed, now)
    control, end = at_source.connection, landed.window.hi
    slot = readable_slot(control, now.slot)
    if slot is not None:
        require_plugin(slot, now.plugin)
    check_no_gap(end, end if slot is None else slot.lsn, flushed_lsn(control))  # a restored backup has no slots
    if slot is None:
        raise missing_slot(now.slot, end)
    require_standbys(slot)
    return slot


def check_health(pipeline: Pipeline, landed: WindowMarker, slot: SlotHealth | ServerIdentity) -> SlotHealth:
    """The same check for ``status`` and the like, on what the server reports of the slot. Raises BreakError,
    and SlotError when the slot uses another plugin.

    A ``ServerIdentity`` in place of ``SlotHealth`` means that the server has no such slot.
    """
    _check_server(pipeline, landed, slot if isinstance(slot, ServerIdentity) else slot.server)
    if isinstance(slot, ServerIdentity):
        raise missing_slot(pipeline.source.slot, landed.window.hi)
    require_plugin(slot, pipeline.source.plugin)
    require_not_lost(slot)
    check_no_gap(landed.window.hi, slot.lsn, slot.flushed_lsn)
    return slot


def check_identity(pipeline: Pipeline, landed: WindowMarker, now: SlotIdentity) -> None:
    """Raise BreakError when windows read now would not follow on the landed ones."""
    server = ServerIdentity(now.system_identifier, now.timeline, now.server_version, now.database)
    _check_server(pipeline, landed, server)
    before = landed.identity
    for what, then, since in (
        ("slot", before.slot, now.slot),
        ("output plugin", before.plugin, now.plugin),
        *_options_of_the_log(before, now),
    ):
        if then != since:
            raise _of_another(what, then, since)


def _check_server(pipeline: Pipeline, landed: WindowMarker, now: ServerIdentity) -> None:
    """Raise BreakError when this is not the WAL that the landed windows were read from.

    A promoted standby continues the WAL of the old primary from where it had received it. If everything landed lies
    before that point, nothing is broken.
    """
    before = landed.identity
    if before.system_identifier != now.system_identifier:
        raise _of_another("cluster (system identifier)", before.system_identifier, now.system_identifier)
    if before.database != now.database:
        raise _of_another("database", before.database, now.database)
    if before.timeline == now.timeline:
        return
    left = left_timeline_at(pipeline.source.dsn, before.timeline, now.timeline)
    if left is None or left < landed.window.hi:
        left_it = "does not come from it" if left is None else f"left it at {left}"
        raise BreakError(
            f"the change log was read on timeline {before.timeline} up to {landed.window.hi}, and the server is on"
            f" timeline {now.timeline}, which {left_it}: a standby was promoted, or a backup restored, that lacks"
            " changes which are landed"
        )


def missing_slot(slot: str, landed_end: Lsn) -> BreakError:
    return BreakError(f"slot {slot} is gone, and the change log ends at {landed_end}: the changes since then are lost")


def nothing_to_recover(pipeline: Pipeline) -> SlotError:
    """Without a change log there is nothing that a slot could continue."""
    return SlotError(
        f"there is nothing to recover: no change log is at {pipeline.lake.change_log}",
        hint="`postgres-cdc sync` creates the slot and the change log; if the log is lost, set source.adopt_slot: true"
        " for it",
    )


def _of_another(what: str, before: object, after: object) -> BreakError:
    return BreakError(f"the change log is of another {what}: it has {before}, now it is {after}", hint=_POINT_BACK)


def _options_of_the_log(landed: SlotIdentity, now: SlotIdentity) -> Iterator[tuple[str, object, object]]:
    """(name, landed value, present value) of the plugin options that decide which changes are sent. The others may
    differ from one window to the next."""
    before, after = dict(landed.options), dict(now.options)
    for name, default in OF_THE_LOG.items():
        yield f"plugin option {name}", before.get(name, default), after.get(name, default)
