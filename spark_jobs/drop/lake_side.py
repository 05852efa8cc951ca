"""Which files of the lake are this pipeline's, and which are not.

Of a Delta table of ours, its log is removed, and every file with a UUID in its name, as writers of Delta tables name
their files. Everything else in ``lake.path``, even between those files, is kept and reported.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from spark_jobs.configuration import Lake
from spark_jobs.delta.files import LakeFile, ask_tables, entries, files_below, remove_empty_folders
from spark_jobs.delta.listed_table import OF_DELTA
from spark_jobs.delta.table import open_table
from spark_jobs.delta.whole_files import delete_files
from spark_jobs.drop.drop_report import Kind, Left, Removal
from spark_jobs.errors import LakeError
from spark_jobs.lake.drop_mark import MARK_NAME, DropMark, LakeOwner
from spark_jobs.lake.messages_state import MESSAGES_NAME
from spark_jobs.lake.table_folders import may_hold_tables
from spark_jobs.lake.table_state import TXN_PREFIX, is_written_by, stream_id
from spark_jobs.options.folder_template import MESSAGES_FOLDER, UNREPRESENTABLE_FOLDER
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.storage import Location
from spark_jobs.writers.with_arrow.leftovers import PARTIAL_LOG, files_without_table

_LOG = "_delta_log/"
# what staging.py and read_record.py make, and what a doctor that was killed leaves
_STAGED = re.compile(r"[^/]+/[^/]+/(\d+-[0-9a-f]{16}|chunks)/.+")
_PROBE = re.compile(r"\.postgres-cdc-doctor-\w+")
_LOGS: dict[str, Kind] = {
    UNREPRESENTABLE_FOLDER: "unrepresentable values",
    "cuts": "cuts",
    "change_log": "change log",
}
_FOREIGN = "not of this pipeline"
# folders that we make even if no table is in them
_MADE_EMPTY = ("tables", "_staging", *_LOGS)


@dataclass(frozen=True)
class LakePart:
    """``folder``: below ``lake.path``, empty for that folder itself; ``files``: ours below it."""

    kind: Kind
    name: str
    folder: str
    files: tuple[LakeFile, ...]

    @property
    def removal(self) -> Removal:
        return Removal(self.kind, self.name, sum(file.size for file in self.files))


@dataclass(frozen=True)
class LakeSide:
    """``parts`` in order of removal. The change log is the last: as long as it exists, ``sync`` and ``recover`` say
    what is missing."""

    parts: tuple[LakePart, ...] = ()
    left: tuple[Left, ...] = ()

    @property
    def tables(self) -> int:
        return sum(part.kind == "table" for part in self.parts)

    @property
    def delta_folders(self) -> tuple[str, ...]:
        """Those of Delta tables, the change log and the cuts included."""
        return tuple(part.folder for part in self.parts if part.kind != "temporary files")


def find_lake_side(lake: Lake, owner: LakeOwner, mark: DropMark | None) -> LakeSide:
    """Raises LakeError if the lake cannot be listed."""
    parts: list[LakePart] = []
    left: list[Left] = []
    for name, file in entries(lake.root).items():
        if name == "_staging" and file is None:
            side = _staged(lake)
        elif name in _LOGS and file is None:
            side = _log_part(lake, _LOGS[name], name, mark)
        elif file is None and may_hold_tables(lake, name):
            side = _tables(lake, name, owner, mark)
        elif file is not None and _PROBE.fullmatch(name):
            side = LakeSide((LakePart("temporary files", name, "", (file,)),))
        else:
            side = LakeSide() if name == MARK_NAME else LakeSide(left=(Left(_shown(lake, name, file), _FOREIGN),))
        parts += side.parts
        left += side.left
    return LakeSide(tuple(sorted(parts, key=lambda part: part.kind == "change log")), tuple(left))


def remove_part(lake: Lake, part: LakePart) -> None:
    """Safe to stop at any point once the mark is written. Raises LakeError."""
    path = lake.root / part.folder if part.folder else lake.root
    delete_files(path, [file.name for file in part.files])
    if part.folder:
        remove_empty_folders(path)


def remove_empty_lake_folders(lake: Lake, removed: Sequence[str]) -> None:
    """The folders that we made in ``lake.path``, and those that the folders ``removed`` were in. ``lake.path`` itself
    is kept, as its owner may have made it."""
    for name in dict.fromkeys(folder.partition("/")[0] for folder in (*removed, *_MADE_EMPTY)):
        remove_empty_folders(lake.root / name)


def _tables(lake: Lake, top: str, owner: LakeOwner, mark: DropMark | None) -> LakeSide:
    """Those in the folder ``top`` of the lake. All folders are named by their paths below ``lake.path``."""
    files = [replace(file, name=f"{top}/{file.name}") for file in files_below(lake.root / top)]
    marked = set(mark.folders if mark is not None else ())
    delta = marked | {file.name.partition(f"/{_LOG}")[0] for file in files if f"/{_LOG}" in file.name}
    roots: dict[str, list[LakeFile]] = {}
    strays: list[LakeFile] = []
    for file in files:
        root = _root(lake, file.name, delta)
        if root is None:
            strays.append(file)
        else:
            roots.setdefault(root, []).append(replace(file, name=file.name.removeprefix(f"{root}/")))
    ours = _ours(lake, owner, marked, [root for root in roots if root in delta])
    sides = [_table_part(lake, root, root_files, ours.get(root)) for root, root_files in roots.items()]
    return LakeSide(
        tuple(part for side in sides for part in side.parts),
        (
            *(each for side in sides for each in side.left),
            *(Left(f"{lake.path}/{file.name}", _FOREIGN) for file in strays),
        ),
    )


def _ours(lake: Lake, owner: LakeOwner, marked: set[str], roots: Sequence[str]) -> dict[str, bool | LakeError]:
    """For each folder with a Delta table, whether that is this pipeline's, or why that is not known."""
    named = {root: name for root in roots if (name := _name_of(lake, root)) is not None}
    names = [name for root, name in named.items() if root not in marked]
    answers = ask_tables(lambda name: is_written_by(lake.table(name), stream_id(*owner.stream)), names)
    return {root: answers.get(named[root], True) if root in named else False for root in roots}


def _table_part(lake: Lake, root: str, files: Sequence[LakeFile], ours: bool | LakeError | None) -> LakeSide:
    """``ours`` is None for a folder without a Delta table."""
    name = _name_of(lake, root)
    if ours is True:
        return _delta_part(lake, "messages" if name == MESSAGES_NAME else "table", str(name), root, files)
    if ours is None and name is not None:
        # what a killed first snapshot has left there
        unfinished = {file.rpartition(f"{root}/")[2] for file in files_without_table(lake.root / root)}
        return _split(lake, "temporary files", f"of {name}", root, files, unfinished)
    why = ours.what if isinstance(ours, LakeError) else _FOREIGN
    return LakeSide(left=(Left(f"{lake.path}/{root}/", why),))


def _root(lake: Lake, file: str, delta: set[str]) -> str | None:
    """The folder of the table that the file belongs to; None if it lies beside the folders of tables."""
    if MESSAGES_FOLDER in delta and file.startswith(f"{MESSAGES_FOLDER}/"):
        return MESSAGES_FOLDER
    parts, depth = file.split("/"), len(lake.tables.segments)
    return "/".join(parts[:depth]) if len(parts) > depth else None


def _name_of(lake: Lake, folder: str) -> QualifiedName | None:
    return MESSAGES_NAME if folder == MESSAGES_FOLDER else lake.tables.name_of(folder)


def _log_part(lake: Lake, kind: Kind, folder: str, mark: DropMark | None) -> LakeSide:
    """The cuts or the change log."""
    path = lake.root / folder
    marked, files = mark.folders if mark is not None else (), files_below(path)
    if not files:
        return LakeSide()
    try:
        is_ours = folder in marked or is_written_by(path, TXN_PREFIX) or _is_empty_log(path)
    except LakeError as error:
        return LakeSide(left=(Left(f"{path}/", error.what),))
    if not is_ours:
        return LakeSide(left=(Left(f"{path}/", _FOREIGN),))
    return _delta_part(lake, kind, path, folder, files)


def _is_empty_log(path: Location) -> bool:
    """A change log in which no window was landed yet, which has no transaction."""
    opened = open_table(path, path)
    return opened is not None and opened.metadata().name == "change_log"


def _staged(lake: Lake) -> LakeSide:
    path = lake.all_staging
    files = files_below(path)
    ours = {file.name for file in files if _STAGED.fullmatch(file.name)}
    return _split(lake, "temporary files", path, "_staging", files, ours)


def _delta_part(lake: Lake, kind: Kind, name: str, folder: str, files: Sequence[LakeFile]) -> LakeSide:
    logs = (_LOG, PARTIAL_LOG)
    ours = {file.name for file in files if file.name.startswith(logs) or OF_DELTA.fullmatch(file.name)}
    return _split(lake, kind, name, folder, files, ours)


def _split(lake: Lake, kind: Kind, name: str, folder: str, files: Sequence[LakeFile], ours: set[str]) -> LakeSide:
    removed = tuple(file for file in files if file.name in ours)
    left = tuple(Left(f"{lake.path}/{folder}/{file.name}", _FOREIGN) for file in files if file.name not in ours)
    parts = (LakePart(kind, name, folder, removed),) if removed else ()
    return LakeSide(parts, left)


def _shown(lake: Lake, name: str, file: LakeFile | None) -> str:
    return f"{lake.path}/{name}" if file is not None else f"{lake.path}/{name}/"
