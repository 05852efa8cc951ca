"""Which files of the lake are this pipeline's, and which are not.

Of a Delta table of ours, its log is removed, and every file with a UUID in its name, as writers of Delta tables name
their files. Everything else in ``lake.path``, even between those files, is kept and reported.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from spark_jobs.configuration import Lake
from spark_jobs.delta.files import ask_tables
from spark_jobs.delta.removal import LakeFile, entries, files_below, remove_empty_folders
from spark_jobs.delta.table import open_table, table_errors
from spark_jobs.delta.transaction_log import TransactionLog
from spark_jobs.delta.whole_files import delete_files
from spark_jobs.drop.drop_report import Kind, Left, Removal
from spark_jobs.errors import LakeError
from spark_jobs.lake.drop_mark import MARK_NAME, DropMark, LakeOwner
from spark_jobs.lake.messages_state import MESSAGES_NAME
from spark_jobs.lake.table_folders import name_of_folder
from spark_jobs.lake.table_state import TXN_PREFIX, stream_id
from spark_jobs.storage import Location
from spark_jobs.writers.leftovers import files_without_table

_LOG = "_delta_log/"
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
# data files and deletion vectors, with the checksums that Hadoop writes beside them in a local folder
_OF_DELTA = re.compile(rf"(.*/)?[^/]*{_UUID}[^/]*\.(parquet|bin|crc)")
# what staging.py and read_plan.py make, and what a doctor that was killed leaves
_STAGED = re.compile(r"[^/]+/[^/]+/(\d+-[0-9a-f]{16}|chunks)/.+")
_PROBE = re.compile(r"\.postgres-cdc-doctor-\w+")
_LOGS: dict[str, Kind] = {"cuts": "cuts", "change_log": "change log"}
_FOREIGN = "not of this pipeline"


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
        if name == "tables" and file is None:
            found = _tables(lake, owner, mark)
        elif name == "_staging" and file is None:
            found = _staged(lake)
        elif name in _LOGS and file is None:
            found = _log_part(lake, _LOGS[name], name, mark)
        elif file is not None and _PROBE.fullmatch(name):
            found = LakeSide((LakePart("temporary files", name, "", (file,)),))
        else:
            found = LakeSide() if name == MARK_NAME else LakeSide(left=(Left(_shown(lake, name, file), _FOREIGN),))
        parts += found.parts
        left += found.left
    return LakeSide(tuple(sorted(parts, key=lambda part: part.kind == "change log")), tuple(left))


def remove_part(lake: Lake, part: LakePart) -> None:
    """Safe to stop at any point once the mark is written. Raises LakeError."""
    path = lake.root / part.folder if part.folder else lake.root
    delete_files(path, [file.name for file in part.files])
    if part.folder:
        remove_empty_folders(path)


def remove_empty_lake_folders(lake: Lake) -> None:
    """The folders that we made in ``lake.path``; that folder itself is kept, as its owner may have made it."""
    for name in ("tables", "_staging", "cuts", "change_log"):
        remove_empty_folders(lake.root / name)


def _tables(lake: Lake, owner: LakeOwner, mark: DropMark | None) -> LakeSide:
    files = files_below(lake.tables)
    marked = {folder.removeprefix("tables/") for folder in (mark.folders if mark is not None else ())}
    delta = marked | {file.name.partition(f"/{_LOG}")[0] for file in files if f"/{_LOG}" in file.name}
    roots: dict[str, list[LakeFile]] = {}
    strays: list[LakeFile] = []
    for file in files:
        root = _root(file.name, delta)
        if root is None:
            strays.append(file)
        else:
            roots.setdefault(root, []).append(replace(file, name=file.name.removeprefix(f"{root}/")))
    ours = _ours(lake, owner, marked, [root for root in roots if root in delta])
    sides = [_table_part(lake, root, found, ours.get(root)) for root, found in roots.items()]
    return LakeSide(
        tuple(part for side in sides for part in side.parts),
        (
            *(each for side in sides for each in side.left),
            *(Left(f"{lake.path}/tables/{file.name}", _FOREIGN) for file in strays),
        ),
    )


def _ours(lake: Lake, owner: LakeOwner, marked: set[str], roots: Sequence[str]) -> dict[str, bool | LakeError]:
    """For each folder with a Delta table, whether that is this pipeline's, or why that is not known."""
    named = {root: name for root in roots if (name := name_of_folder(root)) is not None}
    asked = [name for root, name in named.items() if root not in marked]
    answers = ask_tables(lambda name: _is_written_by(lake.table(name), stream_id(*owner.stream)), asked)
    return {root: answers.get(named[root], True) if root in named else False for root in roots}


def _table_part(lake: Lake, root: str, found: Sequence[LakeFile], ours: bool | LakeError | None) -> LakeSide:
    """``ours`` is None for a folder without a Delta table."""
    name, folder = name_of_folder(root), f"tables/{root}"
    if ours is True:
        return _delta_part(lake, "messages" if name == MESSAGES_NAME else "table", str(name), folder, found)
    if ours is None and name is not None:
        # what a killed first snapshot has left there
        unfinished = {file.rpartition(f"{folder}/")[2] for file in files_without_table(lake.root / folder)}
        return _split(lake, "temporary files", f"of {name}", folder, found, unfinished)
    why = ours.what if isinstance(ours, LakeError) else _FOREIGN
    return LakeSide(left=(Left(f"{lake.path}/{folder}/", why),))


def _root(file: str, delta: set[str]) -> str | None:
    """The folder of the table that the file belongs to; None if it lies beside the folders of tables."""
    schema, _, rest = file.partition("/")
    if schema == MESSAGES_NAME.relname and schema in delta:
        return schema
    relation, _, inside = rest.partition("/")
    return f"{schema}/{relation}" if inside else None


def _is_written_by(path: Location, prefix: str) -> bool:
    """Whether the Delta table has a transaction whose identifier begins with ``prefix``. Raises LakeError."""
    with table_errors(f"{path} cannot be read"):
        log = TransactionLog.open(path)
        if log is None:
            return False
        if any(txn.app_id.startswith(prefix) for commit in log.commits() for txn in commit.transactions):
            return True
        return any(txn.app_id.startswith(prefix) for txn in log.checkpoint_transactions())


def _log_part(lake: Lake, kind: Kind, folder: str, mark: DropMark | None) -> LakeSide:
    """The cuts or the change log."""
    path = lake.root / folder
    marked, files = mark.folders if mark is not None else (), files_below(path)
    if not files:
        return LakeSide()
    try:
        is_ours = folder in marked or _is_written_by(path, TXN_PREFIX) or _is_empty_log(path)
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
    ours = {file.name for file in files if file.name.startswith(_LOG) or _OF_DELTA.fullmatch(file.name)}
    return _split(lake, kind, name, folder, files, ours)


def _split(lake: Lake, kind: Kind, name: str, folder: str, files: Sequence[LakeFile], ours: set[str]) -> LakeSide:
    going = tuple(file for file in files if file.name in ours)
    left = tuple(Left(f"{lake.path}/{folder}/{file.name}", _FOREIGN) for file in files if file.name not in ours)
    parts = (LakePart(kind, name, folder, going),) if going else ()
    return LakeSide(parts, left)


def _shown(lake: Lake, name: str, file: LakeFile | None) -> str:
    return f"{lake.path}/{name}" if file is not None else f"{lake.path}/{name}/"
