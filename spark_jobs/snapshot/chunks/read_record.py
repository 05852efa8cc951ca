"""What is kept of a snapshot in chunks while it is read: the plan, and one file for each chunk that is read.

They lie in ``{lake.path}/_staging/{schema}/{table}/chunks``. A process that is killed loses the chunks that it was
reading. The next one reads those, and no other.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from deltalake.transaction import AddAction

from spark_jobs.configuration import Lake
from spark_jobs.delta.files import REQUESTS_AT_ONCE, LakeFile, files_below, lake_errors, remove_empty_folders
from spark_jobs.delta.whole_files import content_of, create_file, delete_files
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.misfits import NO_MISFITS, Misfits
from spark_jobs.snapshot.chunks.partial_table import remove_partial
from spark_jobs.snapshot.chunks.read_plan import ReadPlan
from spark_jobs.storage import Location
from spark_jobs.writers.with_arrow.leftovers import PARTIAL
from spark_jobs.writers.with_arrow.whole_table import WrittenFiles

_FOLDER = "chunks"
# the newest plan counts, and of a chunk's files the one for the newest columns
_PLAN, _CHUNK, _CORRECTED = "plan-{:03}.json", "chunk-{:06}-", "corrected-{:020}.json"
_OF_PLAN = "plan-"
_ADOPTED = "adopted-{:06}"
_OF_MISFITS = "misfits-"
_MISFITS = _OF_MISFITS + "{:06}.json"
# what obstore's LocalStore calls a file that it has not finished: a process that was killed then leaves it behind
_UNFINISHED = re.compile(r"#\d+$")


@dataclass(frozen=True)
class RecordedFiles:
    """The ``files`` that the file ``name`` of the record names, with the columns of one revision of the plan."""

    name: str
    files: tuple[AddAction, ...]
    revision: int


@dataclass(frozen=True)
class ReadSoFar:
    """``parts``: the files with the rows of the chunks that are read. ``first_window``: see ``ReadPlan``; ``revision``:
    the columns that the table had then. ``is_corrected``: all chunks are read, and the files show all changes before
    ``first_window``. ``misfits``: of these rows, and of rows that a change has replaced since they were read."""

    parts: tuple[RecordedFiles, ...]
    first_window: int
    revision: int = 0
    is_corrected: bool = False
    misfits: Misfits = NO_MISFITS

    @property
    def files(self) -> tuple[AddAction, ...]:
        return tuple(file for part in self.parts for file in part.files)


@dataclass(frozen=True)
class ReadRecord:
    """The files about one table's snapshot in chunks. Each call asks the storage."""

    lake: Lake
    name: QualifiedName

    @property
    def folder(self) -> Location:
        return self.lake.staging(self.name) / _FOLDER

    def plan(self) -> ReadPlan | None:
        """None without one, or if it cannot be understood: then the table is read from the start. Raises LakeError."""
        newest = max((name for name in self._names() if name.startswith(_OF_PLAN)), default=None)
        return None if newest is None else _plan_in(self.folder, newest)

    def begin(self, plan: ReadPlan) -> None:
        """Put ``plan`` in the place of everything that is there. Raises LakeError."""
        self.remove()
        self._write(_PLAN.format(0), plan.to_json())

    def alter(self, plan: ReadPlan) -> bool:
        """``plan`` follows the one that is there: what was read stays. False if another process has written one that
        follows, too. Raises LakeError."""
        return self._write(_PLAN.format(len(plan.revisions) - 1), plan.to_json())

    def unread(self, plan: ReadPlan) -> tuple[int, ...]:
        """The numbers of the pieces that are not read yet; one listing. Raises LakeError."""
        listing = self._names()
        if _newest_correction(listing):
            return ()
        read = {name.rpartition("-")[0] + "-" for name in listing}
        return tuple(number for number in range(plan.pieces) if _CHUNK.format(number) not in read)

    def ended(self) -> list[int]:
        """When each of the chunks that are read was, in order, in milliseconds since 1970. Raises LakeError."""
        start = _CHUNK.partition("{")[0]
        return sorted(file.modified for file in _finished(self.folder) if file.name.startswith(start))

    def chunks(self, plan: ReadPlan) -> ReadSoFar:
        """What is read already. Raises LakeError."""
        listing = self._names()
        if (corrected := _newest_correction(listing)) and (data := self._read(corrected)) is not None:
            fields = json.loads(data)
            misfits = Misfits.from_json(fields["misfits"])
            part = RecordedFiles(corrected, _files(fields["files"]), fields["columns"])
            return ReadSoFar((part,), fields["first_window"], fields["revision"], is_corrected=True, misfits=misfits)
        noted = (data for name in sorted(listing) if name.startswith(_OF_MISFITS) and (data := self._read(name)))
        misfits = Misfits.all_of(map(Misfits.from_json, noted))
        return ReadSoFar(self._of_chunks(plan, listing), plan.first_window, misfits=misfits)

    def _of_chunks(self, plan: ReadPlan, listing: Set[str]) -> tuple[RecordedFiles, ...]:
        starts = [_CHUNK.format(number) for number in range(plan.pieces)]
        newest = {name.rpartition("-")[0] + "-": name for name in sorted(listing)}
        names = [newest[start] for start in starts if start in newest]
        with ThreadPoolExecutor(REQUESTS_AT_ONCE, thread_name_prefix="lake") as pool:
            contents = list(pool.map(self._read, names))
        return tuple(
            RecordedFiles(name, _files(json.loads(data)), int(name.rpartition("-")[2].removesuffix(".json")))
            for name, data in zip(names, contents, strict=True)
            if data
        )

    def forget(self, parts: Iterable[RecordedFiles]) -> None:
        """Those chunks are not read. Raises LakeError."""
        delete_files(self.folder, [part.name for part in parts])

    def _names(self) -> frozenset[str]:
        return frozenset(file.name for file in _finished(self.folder))

    def add(self, plan: ReadPlan, number: int, files: WrittenFiles) -> None:
        """This chunk is read. Raises LakeError."""
        if files.misfits:
            self._write(_MISFITS.format(number), files.misfits.to_json().encode())
        self._add(_CHUNK.format(number), plan, files.actions)

    def adopt(self, number: int, rows: np.ndarray) -> None:
        """The chunk has these ``rows`` of what is adopted, 64-bit numbers. If it is read again after this, that still
        holds for all rows that have not changed since. Raises LakeError."""
        self._write(_ADOPTED.format(number), rows.astype("<u8").tobytes())

    def adopted(self, plan: ReadPlan) -> Iterator[np.ndarray | None]:
        """What ``adopt`` was told of each chunk, None if that is gone. Raises LakeError."""
        for number in range(len(plan.chunks)):
            data = self._read(_ADOPTED.format(number))
            yield None if data is None else np.frombuffer(data, "<u8")

    def convert(self, plan: ReadPlan, part: RecordedFiles, files: Sequence[AddAction]) -> None:
        """These files have the rows of a chunk with the plan's columns. Raises LakeError."""
        self._add(part.name.rpartition("-")[0] + "-", plan, files)
        delete_files(self.folder, [part.name])

    def _add(self, start: str, plan: ReadPlan, files: Sequence[AddAction]) -> None:
        name = f"{start}{len(plan.revisions) - 1:03}.json"
        self._write(name, json.dumps([asdict(file) for file in files]).encode())

    def correct(self, plan: ReadPlan, done: ReadSoFar) -> None:
        """The files of ``done`` have the plan's columns, the rows of all chunks, and show all changes before its first
        window. Raises LakeError."""
        fields = {
            "files": [asdict(file) for file in done.files],
            "columns": len(plan.revisions) - 1,
            "first_window": done.first_window,
            "revision": done.revision,
            "misfits": done.misfits.to_json(),
        }
        self._write(_CORRECTED.format(time.time_ns()), json.dumps(fields).encode())

    def void(self, plan: ReadPlan) -> None:
        """Nothing that was read by the plan is of use. Raises LakeError."""
        self.begin(replace(plan, source="", chunks=()))

    @property
    def partial_tables(self) -> tuple[Location, Location]:
        """Where a table that shows the chunks may be: beside the files that become the table's own, or the others."""
        return self.lake.table(self.name) / PARTIAL, self.folder / PARTIAL

    def hide(self) -> None:
        """Nobody sees the chunks any more. Raises LakeError."""
        for path in self.partial_tables:
            remove_partial(path)

    def remove(self) -> None:
        """Raises LakeError."""
        self.hide()
        names = [file.name for file in files_below(self.folder)]
        # the plan last: without one, what is left of the others is never read
        for is_plan in (False, True):
            delete_files(self.folder, [name for name in names if name.startswith(_OF_PLAN) is is_plan])
        remove_empty_folders(self.folder)

    def _read(self, name: str) -> bytes | None:
        return _content(self.folder, name)

    def _write(self, name: str, data: bytes) -> bool:
        """Whole or not at all. False if there is such a file: another process was faster, and its rows are as good."""
        return create_file(self.folder, name, data)


def plans(lake: Lake) -> Iterator[ReadPlan]:
    """Those of all snapshots in chunks that are not finished. One listing if there are none. Raises LakeError."""
    places = (file.name.rpartition("/") for file in _finished(lake.all_staging))
    newest = {folder: name for folder, _, name in places if name.startswith(_OF_PLAN)}  # as they are in order
    for folder, name in newest.items():
        if (plan := _plan_in(lake.all_staging / folder, name)) is not None:
            yield plan


def _finished(folder: Location) -> list[LakeFile]:
    return [file for file in files_below(folder) if not _UNFINISHED.search(file.name)]


def _newest_correction(names: Set[str]) -> str | None:
    return max((name for name in names if name.startswith(_CORRECTED.partition("{")[0])), default=None)


def _plan_in(folder: Location, name: str) -> ReadPlan | None:
    data = _content(folder, name)
    try:
        return None if data is None else ReadPlan.from_json(data)
    except (ValueError, TypeError, KeyError):
        return None


def _content(folder: Location, name: str) -> bytes | None:
    with lake_errors(f"{folder} cannot be read"):
        try:
            return bytes(content_of(folder, name))
        except FileNotFoundError:
            return None


def rows_of(files: Sequence[AddAction]) -> int:
    return sum(json.loads(file.stats)["numRecords"] for file in files)


def _files(actions: Sequence[dict[str, Any]]) -> tuple[AddAction, ...]:
    return tuple(AddAction(**action) for action in actions)
