"""Up to which window each table is done, and so which landed windows concern it.

What the latest cut lists is not opened: an idle table costs a look at two names. The others tell it themselves, among
them those that have newer commits than the cut knows: an OPTIMIZE, or a snapshot whose process was killed before it
could say so in the cuts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyarrow import fs

from spark_jobs.change_log.window_marker import SlotIdentity, WindowMarker
from spark_jobs.configuration import Lake
from spark_jobs.delta.files import ask_tables, lake_filesystem
from spark_jobs.errors import LakeError
from spark_jobs.lake.cuts import Cut, TableCut
from spark_jobs.lake.table_state import TableState, table_state
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.tables.catalogue_changes import tells_of
from spark_jobs.tables.understood_windows import unknown_messages


@dataclass(frozen=True)
class Standing:
    """The table is done up to the end of window ``ordinal``, as ``cut`` tells it or, where there is none, ``state``."""

    name: QualifiedName
    ordinal: int
    cut: TableCut | None
    state: TableState | None

    @property
    def relid(self) -> int | None:
        """The source table's OID as far as it is known."""
        return self.cut.relid if self.cut else self.state.relid if self.state else None

    def is_touched_by(self, marker: WindowMarker) -> bool:
        """Whether the window holds changes of the table, or of another that has taken its name, or has another one
        now; or what may be about it and is not understood; or tells of a change without an event."""
        if marker.ordinal <= self.ordinal:
            return False
        name = (self.name.nspname, self.name.relname)
        changed = any(each.relid == self.relid or (each.nspname, each.relname) == name for each in marker.relations)
        return (
            changed or tells_of(marker, self.name, self.relid) or bool(unknown_messages(marker, self.name, self.relid))
        )

    def cut_at(self, last: WindowMarker, applied: TableState | None) -> TableCut | None:
        """For a cut at the end of window ``last``: the version that shows it, after a commit or without one (None).
        None: there is no such version."""
        state = applied or self.state
        if state is None:
            return self.cut if self.ordinal <= last.ordinal else None
        relid = state.relid or self.relid
        beyond = state.ordinal > last.ordinal or state.snapshot_lsn > last.window.hi
        if beyond or relid is None:
            return None
        return TableCut(self.name, relid, state.generation, state.version, state.commits)


def standings(
    lake: Lake, names: Sequence[QualifiedName], identity: SlotIdentity, cut: Cut | None
) -> dict[QualifiedName, Standing | LakeError]:
    """Of each table, or why it has none."""
    return ask_tables(lambda name: _standing(lake, name, identity, cut), names)


def known_state(state: TableState, cut: Cut | None) -> TableState:
    """``state``, as a table's own commits tell it, with what ``cut`` knows better: windows that changed nothing of the
    table left no commit in it.

    By generation, never by Delta version: an OPTIMIZE makes versions that show the same rows.
    """
    known = cut.table(state.name) if cut else None
    if cut is None or known is None or known.generation != state.generation:
        return state
    return replace(state, ordinal=max(state.ordinal, cut.ordinal), relid=known.relid)


def state_to_apply_to(lake: Lake, standing: Standing, identity: SlotIdentity, cut: Cut | None) -> TableState:
    """What the table's own log says, with what the cut knows better. Raises LakeError."""
    return known_state(standing.state or _state(lake, standing.name, identity), cut)


def _standing(lake: Lake, name: QualifiedName, identity: SlotIdentity, cut: Cut | None) -> Standing:
    known = cut.table(name) if cut else None
    if cut is not None and known is not None and _is_newest(lake, known):
        return Standing(name, cut.ordinal, known, None)
    state = known_state(_state(lake, name, identity), cut)
    return Standing(name, state.ordinal, None, state)


def _is_newest(lake: Lake, known: TableCut) -> bool:
    """Whether the table is there, without a commit after the one that the cut names."""
    filesystem, log = lake_filesystem(f"{lake.table(known.name)}/_delta_log")
    folder, following = filesystem.get_file_info([log, f"{log}/{known.version + 1:020}.json"])
    return bool(folder.type == fs.FileType.Directory and following.type == fs.FileType.NotFound)


def _state(lake: Lake, name: QualifiedName, identity: SlotIdentity) -> TableState:
    state = table_state(lake, name, identity.system_identifier, identity.slot)
    if state is None:
        raise LakeError(f"{name} has no snapshot yet", hint=f"postgres-cdc snapshot '{name}'")
    return state
