"""How many of a table's windows hold only messages that this version understands."""

from __future__ import annotations

from collections.abc import Sequence

from spark_jobs.change_log.window_marker import UnknownMessage, WindowMarker
from spark_jobs.errors import DecodeError, new_snapshot
from spark_jobs.lake.table_state import TableState
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.qualified_name import QualifiedName


def unknown_messages(marker: WindowMarker, name: QualifiedName, relid: int | None) -> tuple[UnknownMessage, ...]:
    """The messages of the window that may be about the table, by its OID or its name."""
    if not marker.unknown:
        return ()
    relids = {relid, *(counts.relid for counts in marker.counts_of(None, name))} - {None}
    return tuple(message for message in marker.unknown if not message.relids or relids & set(message.relids))


def what_is_unknown(message: UnknownMessage) -> str:
    """What a window holds, to follow its name in the text of an error."""
    return (
        f"at commit LSN {Lsn(message.commit_lsn)}, ordinal {message.ordinal}, it holds a message of type"
        f" {message.kind!r}, which this version does not know"
    )


def understood_windows(
    markers: Sequence[WindowMarker], state: TableState
) -> tuple[Sequence[WindowMarker], DecodeError | None]:
    """The windows before the first one that holds a message of unknown type about the table, and the error that names
    that message.

    Messages that the table's snapshot already shows do not count.
    """
    for place, marker in enumerate(markers):
        for message in unknown_messages(marker, state.relation, state.relid):
            if message.commit_lsn >= state.snapshot_lsn:
                return markers[:place], _not_understood(marker, message, state.name)
    return markers, None


def _not_understood(marker: WindowMarker, message: UnknownMessage, name: QualifiedName) -> DecodeError:
    return DecodeError(
        f"{name} stops before window {marker.ordinal} {marker.window} of slot {marker.identity.slot}:"
        f" {what_is_unknown(message)}",
        hint=f"it is kept in the change log: use a newer version of postgres-cdc, or {new_snapshot(name)}",
    )
