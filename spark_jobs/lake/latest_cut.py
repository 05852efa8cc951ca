"""Show tables in the latest cut as they are now, at the same LSN as before."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType

from spark_jobs.change_log.window_marker import SlotIdentity
from spark_jobs.configuration import Lake
from spark_jobs.lake.cuts import TableCut, latest_cut, write_cut
from spark_jobs.lake.generation import Generation
from spark_jobs.lake.table_state import TableState, entry_in_cut, table_state
from spark_jobs.qualified_name import QualifiedName


def show_in_latest_cut(
    lake: Lake,
    identity: SlotIdentity,
    names: Collection[QualifiedName],
    same_rows: Mapping[QualifiedName, tuple[int, int] | None] = MappingProxyType({}),
) -> None:
    """Write a cut that shows the tables ``names`` at their newest versions. Tables that have gone on meanwhile, or have
    lost a commit, are left to the next cut.

    ``same_rows``: two versions of a table that are known to show the same rows. If the cut has the first, it gets the
    second, and the table is not opened."""
    latest = latest_cut(lake)
    if latest is None or not names:
        return

    def shown(table: TableCut) -> TableCut:
        if table.name not in names:
            return table
        if (known := same_rows.get(table.name)) and table.version == known[0]:
            return replace(table, version=known[1])
        state = table_state(lake, table.name, identity)
        if state is None or not _is_of_same_snapshot(state, table) or state.ordinal > latest.ordinal:
            return table
        if state.has_lost(table.commits, table.last_commit):
            return table
        return entry_in_cut(state, table.relid)

    tables = tuple(map(shown, latest.tables))
    if tables != latest.tables:
        write_cut(lake, latest.ordinal, latest.lsn, tables, based_on=latest)


def _is_of_same_snapshot(state: TableState, table: TableCut) -> bool:
    """Whether both grew from the same snapshot, even if their forms differ."""
    return state.generation == Generation.parse(table.generation).in_form(state.generation.form)
