"""The first landed window that is still needed, however old it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import LakeError
from spark_jobs.lake.cuts import latest_cut
from spark_jobs.lake.messages_state import has_messages_table, messages_state
from spark_jobs.lake.table_state import TableState
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.tables.progress import known_state


@dataclass(frozen=True)
class Needed:
    """Windows from ``ordinal`` on are needed. ``by`` names the table that is furthest behind; empty if only the last
    window is needed."""

    ordinal: int
    by: str = ""


def needed_windows(
    pipeline: Pipeline, last: WindowMarker, states: Mapping[QualifiedName, TableState | LakeError]
) -> Needed:
    """A table needs the marker of the window that it shows, and the windows after it. A table without a snapshot, or
    that needs a new one, needs none. A table that cannot be read may need all."""
    cut = latest_cut(pipeline.lake)
    needs = [Needed(last.ordinal)]
    for name, state in states.items():
        if isinstance(state, LakeError):
            needs.append(Needed(0, f"{name}, which cannot be read"))
        elif not state.is_lost:
            needs.append(Needed(known_state(state, cut).ordinal, str(name)))
    if has_messages_table(pipeline):
        messages = messages_state(pipeline.lake, last.identity)
        # a messages table that does not exist yet is built from everything in the change log
        needs.append(Needed(known_state(messages, cut).ordinal if messages else 0, "the messages table"))
    return min(needs, key=lambda need: need.ordinal)
