"""The tables that a lake holds, as far as the names of its folders tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Lake
from spark_jobs.delta.files import ask_tables, entries
from spark_jobs.errors import LakeError
from spark_jobs.lake.cuts import latest_cut
from spark_jobs.lake.table_state import is_written_by, stream_id
from spark_jobs.options.folder_template import MESSAGES_FOLDER
from spark_jobs.qualified_name import QualifiedName


def names_in_lake(lake: Lake) -> tuple[QualifiedName, ...]:
    """The names that folders of tables have, whoever wrote them. Raises LakeError if the lake cannot be listed."""
    folders = [""]
    for segment in lake.tables.segments:
        folders = [f"{folder}/{name}".lstrip("/") for folder in folders for name in _inside(lake, folder, segment)]
    return tuple(name for folder in folders if (name := lake.tables.name_of(folder)) is not None)


def require_folders_of(lake: Lake, landed: WindowMarker) -> None:
    """Raises LakeError if tables are where ``lake.tables`` had them when ``landed`` was landed, and not where it has
    them now: each would begin again with a snapshot, and what it was would be left behind."""
    if landed.tables == lake.tables:
        return
    before, prefix, cut = replace(lake, tables=landed.tables), stream_id(*landed.identity.stream), latest_cut(lake)

    def may_be_left(name: QualifiedName) -> bool:
        now = lake.tables.name_of(before.tables.folder(name))
        # the folder may have been that of another table before this one was moved there
        return now is None or (now != name and cut is not None and cut.table(name) is not None)

    names = list(filter(may_be_left, names_in_lake(before)))
    ours = ask_tables(lambda name: is_written_by(before.table(name), prefix), names)
    if left := [name for name, is_ours in ours.items() if is_ours]:
        raise _left_behind(before, lake, left)


def _left_behind(before: Lake, lake: Lake, left: Sequence[QualifiedName]) -> LakeError:
    first, more = left[0], f" (and {len(left) - 1} more)" if len(left) > 1 else ""
    if not lake.tables.takes(first):
        hint = "configure it as before, or replicate the other schema into another lake.path"
    else:
        hint = f"move each table, {first} to {lake.table(first)}, or set lake.tables back to {before.tables}"
    return LakeError(
        f"lake.tables was {before.tables}, and is {lake.tables} now: {first} is still at {before.table(first)}{more}",
        hint=hint,
    )


def _inside(lake: Lake, folder: str, segment: str) -> list[str]:
    """The folders in ``folder`` that are as ``segment`` of the template says."""
    if "{" not in segment:
        return [segment]
    names = [name for name, file in entries(lake.root / folder if folder else lake.root).items() if file is None]
    # no table lies in the folder of another one, as a schema's tables would in that of the messages table
    return [] if "_delta_log" in names else names


def may_hold_tables(lake: Lake, folder: str) -> bool:
    """Whether a table, or the messages table, may be in this folder of ``lake.path``, or be it."""
    first = lake.tables.segments[0]
    return "{" in first or folder in (first, MESSAGES_FOLDER.partition("/")[0])
