"""What the landed looks at the catalogue mean for a table: from which window on only a new snapshot helps."""

from __future__ import annotations

from collections.abc import Sequence

from spark_jobs.change_log.window_marker import TableChanged, WindowMarker
from spark_jobs.errors import SchemaChangeError
from spark_jobs.lake.table_state import TableState
from spark_jobs.qualified_name import QualifiedName


def tells_of(marker: WindowMarker, name: QualifiedName, relid: int | None) -> bool:
    """Whether the table, or another one that has its name, changed in a way that no event tells of."""
    return bool(_changed(marker, name, relid))


def change_without_event(markers: Sequence[WindowMarker], state: TableState) -> SchemaChangeError | None:
    """The first of the windows after the table's snapshot in which its rows may have changed without an event.

    A look at the catalogue is taken when its window is landed, so after the window's end. A snapshot that is later than
    that shows the change already; so does one that was taken of the same fingerprint.
    """
    for marker in markers:
        if marker.window.hi <= state.snapshot_lsn:
            continue
        for changed in _changed(marker, state.name, state.relid):
            if changed.word != state.word:
                reasons = changed.reasons or ("it was changed right after its snapshot",)
                return changed_without_event(state.name, reasons, f"seen with window {marker.ordinal}, {marker.window}")
    return None


def changed_without_event(name: QualifiedName, reasons: Sequence[str], seen: str) -> SchemaChangeError:
    """The error that says why the table must be read again."""
    return SchemaChangeError(
        f"{name} must be read again: {'; '.join(reasons)} ({seen})",
        hint=f"`postgres-cdc sync` takes a new snapshot by itself, else: postgres-cdc snapshot '{name}'",
    )


def _changed(marker: WindowMarker, name: QualifiedName, relid: int | None) -> list[TableChanged]:
    changed = marker.catalogue.changed if marker.catalogue is not None else ()
    return [
        table
        for table in changed
        if table.relid == relid or (table.nspname, table.relname) == (name.nspname, name.relname)
    ]
