"""How far each table is, and which landed windows concern it.

A table that is still at the version in the latest cut is not opened: an idle table only costs a check for two file
names. All others are read from their own logs. These include tables with newer commits than the cut: an OPTIMIZE, or a
snapshot whose process was killed before it could write a cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyarrow import fs

from spark_jobs.change_log.window_marker import SlotIdentity, WindowMarker
from spark_jobs.configuration import Lake
from spark_jobs.delta.files import ask_tables, lake_filesystem
from spark_jobs.errors import LakeError
from spark_jobs.lake.cuts import Cut, TableCut, latest_cut
from spark_jobs.lake.messages_state import MESSAGES_NAME, messages_state
from spark_jobs.lake.table_state import TableState, snapshot_lsn_of, table_state
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.tables.catalogue_changes import tells_of
from spark_jobs.tables.understood_windows import unknown_messages


@dataclass(frozen=True)
class Progress:
    """``states`` of the tables that were asked for, ``errors`` of those that cannot be read, and the latest ``cut``.

    A messages table that does not exist yet is in neither.
    """

    states: Mapping[QualifiedName, TableState]
    errors: Mapping[QualifiedName, LakeError]
    cut: Cut | None


def progress_of(lake: Lake, names: Sequence[QualifiedName], identity: SlotIdentity) -> Progress:
    """How far these tables are; ``MESSAGES_NAME`` may be one of them."""
    cut = latest_cut(lake)
    found = ask_tables(lambda name: _state(lake, name, identity, cut), names)
    states = {name: state for name, state in found.items() if isinstance(state, TableState)}
    return Progress(states, {name: error for name, error in found.items() if isinstance(error, LakeError)}, cut)


def known_state(state: TableState, cut: Cut | None) -> TableState:
    """``state``, read from the table's own commits, brought up to date with ``cut``: windows that did not change the
    table left no commit in it.

    The two are compared by generation, not by Delta version: an OPTIMIZE makes versions that show the same rows. A
    table with fewer commits of ours than the cut counts is an older copy that was restored; its state is not changed.
    """
    known = cut.table(state.name) if cut else None
    if cut is None or known is None or known.generation != state.generation or known.commits > state.commits:
        return state
    return replace(state, ordinal=max(state.ordinal, cut.ordinal), relid=known.relid)


def concerns(marker: WindowMarker, state: TableState) -> bool:
    """Whether the window holds anything that may affect the table: changes of it, also under another name; changes of
    another table with its name; messages of unknown type; a change without a row event; or a new chapter."""
    if marker.ordinal <= state.ordinal:
        return False
    name, relid = state.name, state.relid
    if any(
        seen.relid == relid or (seen.nspname, seen.relname) == (name.nspname, name.relname) for seen in marker.relations
    ):
        return True
    return tells_of(marker, name, relid) or bool(unknown_messages(marker, name, relid))


def cut_at(last: WindowMarker, state: TableState) -> TableCut | None:
    """The table's entry in a cut at the end of window ``last``; None when its newest version does not show that LSN."""
    beyond = state.ordinal > last.ordinal or state.snapshot_lsn > last.window.hi
    if beyond or state.relid is None:
        return None
    return TableCut(state.name, state.relid, state.generation, state.version, state.commits)


def _state(lake: Lake, name: QualifiedName, identity: SlotIdentity, cut: Cut | None) -> TableState | None:
    if name == MESSAGES_NAME:
        messages = messages_state(lake, identity)
        return None if messages is None else known_state(messages, cut)
    known = cut.table(name) if cut else None
    if cut is not None and known is not None and _is_newest(lake, known):
        return _state_of_cut(cut, known)
    state = table_state(lake, name, *identity.stream)
    if state is None:
        raise LakeError(f"{name} has no snapshot yet", hint=f"postgres-cdc snapshot '{name}'")
    return known_state(state, cut)


def _is_newest(lake: Lake, known: TableCut) -> bool:
    """Whether the table exists and has no commit after the one in the cut."""
    filesystem, log = lake_filesystem(f"{lake.table(known.name)}/_delta_log")
    folder, following = filesystem.get_file_info([log, f"{log}/{known.version + 1:020}.json"])
    return bool(folder.type == fs.FileType.Directory and following.type == fs.FileType.NotFound)


def _state_of_cut(cut: Cut, known: TableCut) -> TableState:
    """The state in the cut, without the cause of the snapshot, which only the table's own log has."""
    lsn = snapshot_lsn_of(known.generation)
    return TableState(known.name, known.generation, lsn, cut.ordinal, known.version, known.relid, known.commits)
