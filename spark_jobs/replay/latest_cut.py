"""Show rebuilt tables in the latest cut at once, at the same LSN as before."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from spark_jobs.change_log.window_marker import SlotIdentity
from spark_jobs.configuration import Pipeline
from spark_jobs.lake.cuts import TableCut, latest_cut, write_cut
from spark_jobs.lake.table_state import TableState, table_state
from spark_jobs.qualified_name import QualifiedName


def show_in_latest_cut(pipeline: Pipeline, identity: SlotIdentity, rebuilt: Collection[QualifiedName]) -> None:
    """Write a cut that shows the tables ``rebuilt`` as they are now. Tables that have gone on meanwhile are left to the
    next cut."""
    latest = latest_cut(pipeline.lake)
    if latest is None or not rebuilt:
        return

    def shown(table: TableCut) -> TableCut:
        if table.name not in rebuilt:
            return table
        state = table_state(pipeline.lake, table.name, *identity.stream)
        if state is None or not _is_of_same_snapshot(state, table) or state.ordinal > latest.ordinal:
            return table
        return replace(table, generation=state.generation, version=state.version, commits=state.commits)

    write_cut(pipeline.lake, latest.ordinal, latest.lsn, tuple(map(shown, latest.tables)), based_on=latest)


def _is_of_same_snapshot(state: TableState, table: TableCut) -> bool:
    """Whether both grew from the same snapshot, even if their modes differ."""
    return state.generation == replace(state, generation=table.generation).generation_in(state.mode)
