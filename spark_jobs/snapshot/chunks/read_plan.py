"""What is kept of a snapshot in chunks while it is read: the plan, and one file for each chunk that is read.

They lie in ``{lake.path}/_staging/{schema}/{table}/chunks``. A process that is killed loses the chunks that it was
reading. The next one reads those, and no other.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from deltalake.transaction import AddAction

from spark_jobs.configuration import Lake
from spark_jobs.delta.files import REQUESTS_AT_ONCE, files_below, lake_errors, remove_empty_folders
from spark_jobs.delta.whole_files import content_of, create_file, delete_files
from spark_jobs.lake.table_state import TableState
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.fingerprint import Fingerprint
from spark_jobs.schema.fingerprint_differences import differences
from spark_jobs.schema.misfits import NO_MISFITS, Misfits
from spark_jobs.snapshot.chunks.partial_table import is_partial, remove_partial
from spark_jobs.snapshot.chunks.planned_columns import PlannedColumns
from spark_jobs.snapshot.export import CtidRange, SnapshotValue
from spark_jobs.storage import Location
from spark_jobs.writers.leftovers import PARTIAL
from spark_jobs.writers.whole_table import WrittenFiles

_FOLDER = "chunks"
# the newest plan counts, and of a chunk's files the one for the newest columns
_PLAN, _CHUNK, _CORRECTED = "plan-{:03}.json", "chunk-{:06}-", "corrected-{:020}.json"
_OF_PLAN = "plan-"
_ADOPTED = "adopted-{:06}"
_OF_MISFITS = "misfits-"
_MISFITS = _OF_MISFITS + "{:06}.json"
_CHUNKS_OF_PACE = 32  # so many tell how long the others take: a pause between two runs is forgotten


@dataclass(frozen=True)
class ReadPlan:
    """How the table ``name`` is read. ``source``: the identity of the change log's chapter. ``word`` and
    ``fingerprint``: the table's, as ``Fingerprint`` has them; ``what``: determines which rows are read, and how.
    ``generation``: of the lake's table, empty if there is none. If one of these is another by now, the plan is void,
    unless ``altered_as`` says that it is not.

    ``first_window``: the first one with changes that a chunk may not show. ``revisions``: the columns that are read,
    after those that were read before the table was altered. ``chunks``: the ranges of blocks to read. ``attempt``: how
    many plans of this table were void before. ``adopted``: the version of the table whose rows are adopted, empty if
    none are; then nothing that was read is of use once the table is altered.
    """

    name: QualifiedName
    source: str
    relid: int
    word: str
    fingerprint: str
    what: str
    generation: str
    first_window: int
    revisions: tuple[PlannedColumns, ...]
    chunks: tuple[CtidRange, ...]
    began: datetime
    attempt: int = 0
    adopted: str = ""

    @property
    def columns(self) -> PlannedColumns:
        return self.revisions[-1]

    def goes_on_from(self, state: TableState | None) -> bool:
        """Whether the next run reads on, as ``state`` is what the lake has. If not, a process was killed when it had
        written the table, or another snapshot was quicker."""
        return self.generation == generation_of(state)

    @property
    def is_void(self) -> bool:
        """Whether nothing that was read by it is of use, as somebody has found and said."""
        return not self.chunks

    def is_of_same(self, other: ReadPlan) -> bool:
        """Whether the table is still as it was when this plan was made or altered: ``other`` is for what it is now."""
        same = self._is_of_same_rows(other) and (self.word, self.columns.source) == (other.word, other.columns.source)
        return same and self._leaves.items() <= other._leaves.items()

    def altered_as(self, other: ReadPlan) -> ReadPlan | None:
        """The plan that reads on, as the table is now, which ``other`` was made for. None if what was read is of no use
        to it: DDL that is followed in place changes no row that was read, but gives it other columns. Partitions that
        were created have no chunk, as the change log has all their rows."""
        leaves = {chunk.relid: chunk for chunk in other.chunks}
        if self.is_void or self.adopted or not self._is_of_same_rows(other) or not self.columns.become(other.columns):
            return None
        if any(chunk.relid not in leaves or leaves[chunk.relid].file != chunk.file for chunk in self.chunks):
            return None
        difference = differences(
            Fingerprint.of(self.word, self.fingerprint), Fingerprint.of(other.word, other.fingerprint)
        )
        if difference.reasons or difference.moved_files:
            return None
        chunks = tuple(replace(chunk, form=leaves[chunk.relid].form) for chunk in self.chunks)
        columns = self.columns if self.columns.source == other.columns.source else other.columns
        revisions = (*self.revisions, columns)
        return replace(self, word=other.word, fingerprint=other.fingerprint, revisions=revisions, chunks=chunks)

    def _is_of_same_rows(self, other: ReadPlan) -> bool:
        mine, theirs = ((plan.source, plan.relid, plan.what, plan.generation) for plan in (self, other))
        return mine == theirs

    @property
    def _leaves(self) -> dict[int, tuple[str, str]]:
        return {chunk.relid: (chunk.file.value, chunk.form.value) for chunk in self.chunks}

    @property
    def pieces(self) -> int:
        """The number of the chunks, and after them that of all rows that are adopted."""
        return len(self.chunks) + bool(self.adopted)

    @property
    def size(self) -> int:
        return sum(chunk.stored_bytes for chunk in self.chunks)

    def to_json(self) -> bytes:
        leaves = {
            chunk.relid: [chunk.leaf.nspname, chunk.leaf.relname, asdict(chunk.file), asdict(chunk.form)]
            for chunk in self.chunks
        }
        chunks = [(chunk.relid, chunk.first, chunk.last, chunk.stored_bytes) for chunk in self.chunks]
        name = (self.name.nspname, self.name.relname)
        fields = {**self.__dict__, "name": name, "began": self.began.isoformat(), "leaves": leaves, "chunks": chunks}
        fields["revisions"] = [asdict(columns) for columns in self.revisions]
        return json.dumps(fields).encode()

    @classmethod
    def from_json(cls, data: bytes) -> ReadPlan:
        """Raises ValueError, TypeError and KeyError."""
        fields = json.loads(data)
        leaves = {
            int(relid): (QualifiedName(nspname, relname), SnapshotValue(**file), SnapshotValue(**form))
            for relid, (nspname, relname, file, form) in fields.pop("leaves").items()
        }
        chunks = (
            CtidRange(leaves[relid][0], relid, first, last, size, *leaves[relid][1:])
            for relid, first, last, size in fields.pop("chunks")
        )
        plan = cls(**fields, chunks=tuple(chunks))
        return replace(
            plan,
            name=QualifiedName(*fields["name"]),
            revisions=tuple(map(PlannedColumns.from_json, fields["revisions"])),
            began=datetime.fromisoformat(fields["began"]),
        )


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
        return frozenset(file.name for file in files_below(self.folder))

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
    places = (file.name.rpartition("/") for file in files_below(lake.all_staging))
    newest = {folder: name for folder, _, name in places if name.startswith(_OF_PLAN)}  # as they are in order
    for folder, name in newest.items():
        if (plan := _plan_in(lake.all_staging / folder, name)) is not None:
            yield plan


@dataclass(frozen=True)
class SnapshotProgress:
    """Of a snapshot that is not finished: how many of its ``chunks`` are read. ``seconds_left``: how long reading takes
    the others, as long as the last ones took; None if that is not known. ``partial``: the table that shows those that
    are read, if there is one."""

    chunks_read: int
    chunks: int
    seconds_left: float | None = None
    partial: str | None = None

    @classmethod
    def of(cls, record: ReadRecord, plan: ReadPlan) -> SnapshotProgress:
        """Four listings. Raises LakeError."""
        left, chunks = len(record.unread(plan)), plan.pieces
        partial = next(filter(is_partial, record.partial_tables), None)
        if not left:
            return cls(chunks, chunks, partial=partial)
        start = _CHUNK.partition("{")[0]
        ended = sorted(file.modified for file in files_below(record.folder) if file.name.startswith(start))
        last = ended[-_CHUNKS_OF_PACE:]
        seconds = (last[-1] - last[0]) / 1000 / (len(last) - 1) * left if len(last) > 1 else None
        return cls(chunks - left, chunks, seconds, partial)

    def __str__(self) -> str:
        parts = [f"{self.chunks_read:,} of {self.chunks:,} chunks"]
        parts += [] if self.seconds_left is None else [f"{timedelta(seconds=round(self.seconds_left))} left"]
        return ", ".join([*parts, *([f"so far in {self.partial}"] if self.partial else [])])


def generation_of(state: TableState | None) -> str:
    """As ``ReadPlan`` has it."""
    return "" if state is None else str(state.generation)


def snapshot_progress(lake: Lake, states: Mapping[QualifiedName, TableState]) -> dict[QualifiedName, SnapshotProgress]:
    """Of the tables that are read in chunks now. ``states``: of those in the lake. Raises LakeError."""
    return {
        plan.name: SnapshotProgress.of(ReadRecord(lake, plan.name), plan)
        for plan in plans(lake)
        if not plan.is_void and plan.goes_on_from(states.get(plan.name))
    }


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
