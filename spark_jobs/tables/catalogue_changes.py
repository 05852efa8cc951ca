"""What looks at the catalogue and new chapters mean for a table: from which window on it has to be read again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spark_jobs.change_log.window_marker import ChapterBreak, RelationCounts, TableChanged, WindowMarker
from spark_jobs.errors import NeedsSnapshotError, SchemaChangeError
from spark_jobs.lake.table_state import TableState
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.partition_bounds import Region, outermost


def tells_of(marker: WindowMarker, name: QualifiedName, relid: int | None) -> bool:
    """Whether the table, or another one with its name, changed without a row event, or a new chapter begins."""
    return marker.broke is not None or bool(_changed(marker, name, relid))


def is_annotated(marker: WindowMarker, relid: int | None) -> bool:
    """Whether the window's look found that the source says something else about the table, which changes no row."""
    return marker.catalogue is not None and relid in marker.catalogue.annotated


def change_without_event(markers: Sequence[WindowMarker], state: TableState) -> NeedsSnapshotError | None:
    """The error for the first window after the table's snapshot in which its rows may have changed without an event.

    At a new chapter of the log, changes of any table may be missing, and LSNs before and after it cannot be compared.
    The look of any of these windows may be later than the snapshot, even if the window ends before it. If the snapshot
    shows what the look found, see ``_shows``. Otherwise the look may also be the earlier of the two: then the table is
    read again once without need.
    """
    for marker in markers:
        if marker.broke is not None:
            return _broken_off(marker, marker.broke, state)
        for changed in changes_of(marker, state):
            followed_in_place = bool(changed.columns) and not changed.reasons
            if not followed_in_place:
                reasons = changed.reasons or ("it was changed right after its snapshot",)
                return changed_without_event(state.name, reasons, f"seen with window {marker.ordinal}, {marker.window}")
    return None


def regions_changed(markers: Sequence[WindowMarker], state: TableState) -> tuple[Region, ...]:
    """The rows that may differ, if all changes that ``change_without_event`` considers are partitions that were
    attached or removed, and no column changed. Empty if no row may differ, or any row may."""
    regions: list[Region] = []
    for marker in markers:
        if marker.broke is not None:
            return ()
        for changed in changes_of(marker, state):
            if not changed.regions or changed.columns:
                return ()
            regions += changed.regions
    return outermost(regions)


def column_changes_of(markers: Sequence[WindowMarker], state: TableState) -> tuple[TableChanged, ...]:
    """The looks of these windows that found changed columns of the table."""
    changes = (changed for marker in markers for changed in _changed(marker, state.relation, state.relid))
    return tuple(changed for changed in changes if changed.columns)


def changes_of(marker: WindowMarker, state: TableState) -> Iterator[TableChanged]:
    """The changes of the table that the window's look found, unless its snapshot shows them already."""
    every = _changed(marker, state.relation, state.relid)
    return (changed for changed in every if not _shows(state, changed, marker))


def _shows(state: TableState, changed: TableChanged, marker: WindowMarker) -> bool:
    """Whether the table's snapshot was taken after this change: then both have the same fingerprint. But so has what
    was before a partition was attached and detached, and a look finds only what happened since the window began. (A
    look that shows the table for the first time gives no reason.)"""
    if not changed.word or changed.word != state.generation.word:
        return False
    return not changed.reasons or state.generation.snapshot_lsn > marker.window.lo


def changed_without_event(name: QualifiedName, reasons: Sequence[str], occasion: str) -> SchemaChangeError:
    """The error that says why the table needs a re-snapshot."""
    return SchemaChangeError.because(name, f"{'; '.join(reasons)} ({occasion})")


def is_of_another(counts: RelationCounts, name: QualifiedName, relid: int) -> bool:
    """Whether these are changes of a table that has the name ``name``, and is not the one with this OID."""
    return counts.relid != relid and counts.name == name


def another_table(marker: WindowMarker, name: QualifiedName, *, hint: str) -> SchemaChangeError:
    """The error for the first window with such changes. ``hint``: what helps who has asked."""
    what = "is another table: it was dropped and re-created, or another was renamed to it"
    return SchemaChangeError(f"{name} {what}, in window {marker.ordinal} ({marker.window})", hint=hint)


def is_of_earlier_chapter(state: TableState, chapter: int) -> bool:
    """Whether the table grew from a snapshot of an earlier chapter than the one that begins with window ``chapter``."""
    return not state.is_lost and state.ordinal < chapter


def _broken_off(marker: WindowMarker, broke: ChapterBreak, state: TableState) -> NeedsSnapshotError:
    return NeedsSnapshotError(
        f"{state.name} needs a re-snapshot: {broke.what} (seen before window {marker.ordinal}, at {broke.at})",
        hint="`postgres-cdc recover --config FILE` takes the new snapshots that are missing, and so does `sync`",
    )


def _changed(marker: WindowMarker, name: QualifiedName, relid: int | None) -> list[TableChanged]:
    changed = marker.catalogue.changed if marker.catalogue is not None else ()
    return [table for table in changed if table.relid == relid or table.name == name]
