"""What is kept of a snapshot in chunks while it is read: the plan, and one file for each chunk that is read.

They lie in ``{lake.path}/_staging/{schema}/{table}/chunks``. A process that is killed loses the chunks that it was
reading. The next one reads those, and no other.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

import numpy as np
from deltalake.transaction import AddAction

from spark_jobs.configuration import Lake
from spark_jobs.delta.files import REQUESTS_AT_ONCE, lake_errors
from spark_jobs.delta.removal import files_below, remove_empty_folders
from spark_jobs.delta.whole_files import content_of, create_file, delete_files
from spark_jobs.lake.table_state import TableState
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.misfits import NO_MISFITS, Misfits
from spark_jobs.snapshot.export import CtidRange, SnapshotValue
from spark_jobs.storage import Location
from spark_jobs.writers.write_choice import Engine

_FOLDER = "chunks"
_PLAN, _CHUNK, _CORRECTED = "plan.json", "chunk-{:06}.json", "corrected-{:020}.json"
_ADOPTED = "adopted-{:06}"
_OF_MISFITS = "misfits-"
_MISFITS = _OF_MISFITS + "{:06}.json"


@dataclass(frozen=True)
class ReadPlan:
    """How the table ``name`` is read. ``source``: the identity of the change log's chapter. ``word``: the table's
    fingerprint, and ``what``: that of the columns and rows that are read. ``generation``: of the lake's table, empty if
    there is none. If one of these is another by now, the plan is void.

    ``first_window``: the first one with changes that a chunk may not show. ``writer``: what commits the table; its
    files have the names ``physical`` and numbers ``ids``. ``chunks``: the ranges of blocks to read. ``attempt``: how
    many plans of this table were void before. ``adopted``: the version of the table whose rows are adopted, empty if
    none are.
    """

    name: QualifiedName
    source: str
    relid: int
    word: str
    what: str
    generation: str
    first_window: int
    writer: Engine
    physical: tuple[str, ...]
    ids: tuple[int | None, ...]
    chunks: tuple[CtidRange, ...]
    began: datetime
    attempt: int = 0
    adopted: str = ""

    def goes_on_from(self, state: TableState | None) -> bool:
        """Whether the next run reads on, as ``state`` is what the lake has. If not, a process was killed when it had
        written the table, or another snapshot was quicker."""
        return self.generation == generation_of(state)

    @property
    def is_void(self) -> bool:
        """Whether nothing that was read by it is of use, as somebody has found and said."""
        return not self.chunks

    def is_of_same(self, other: ReadPlan) -> bool:
        """Whether chunks that were read by the other plan are as good as those read by this one."""
        return self._of == other._of

    @property
    def _of(self) -> tuple[object, ...]:
        return self.source, self.relid, self.word, self.what, self.generation, self._leaves

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
            physical=tuple(plan.physical),
            ids=tuple(plan.ids),
            began=datetime.fromisoformat(fields["began"]),
        )


@dataclass(frozen=True)
class ChunksRead:
    """``files``: those with the rows of the chunks that are read. ``first_window``: see ``ReadPlan``.
    ``is_corrected``: all chunks are read, and the files show all changes before ``first_window``. ``misfits``: of these
    rows, and of rows that a change has replaced since they were read."""

    files: tuple[AddAction, ...]
    first_window: int
    is_corrected: bool = False
    misfits: Misfits = NO_MISFITS


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
        return _plan_in(self.folder)

    def begin(self, plan: ReadPlan) -> None:
        """Put ``plan`` in the place of everything that is there. Raises LakeError."""
        self.remove()
        self._write(_PLAN, plan.to_json())

    def unread(self, plan: ReadPlan) -> tuple[int, ...]:
        """The numbers of the pieces that are not read yet; one listing. Raises LakeError."""
        there = self._names()
        if _newest_correction(there):
            return ()
        return tuple(number for number in range(plan.pieces) if _CHUNK.format(number) not in there)

    def chunks(self, plan: ReadPlan) -> ChunksRead:
        """What is read already. Raises LakeError."""
        there = self._names()
        if (corrected := _newest_correction(there)) and (data := self._read(corrected)) is not None:
            fields = json.loads(data)
            misfits = Misfits.from_json(fields["misfits"]) if "misfits" in fields else NO_MISFITS
            return ChunksRead(_files(fields["files"]), fields["first_window"], is_corrected=True, misfits=misfits)
        files = self._files_of_chunks(plan, there).values()
        noted = (data for name in sorted(there) if name.startswith(_OF_MISFITS) and (data := self._read(name)))
        misfits = Misfits.all_of(map(Misfits.from_json, noted))
        return ChunksRead(tuple(file for chunk in files for file in chunk), plan.first_window, misfits=misfits)

    def forget(self, plan: ReadPlan, gone: Set[str]) -> None:
        """Those chunks are not read of which a file is ``gone``. Raises LakeError."""
        read = self._files_of_chunks(plan, self._names())
        lost = [name for name, files in read.items() if gone & {file.path for file in files}]
        delete_files(self.folder, lost)

    def _files_of_chunks(self, plan: ReadPlan, there: Set[str]) -> dict[str, tuple[AddAction, ...]]:
        """By the name of the chunk's file."""
        names = [name for number in range(plan.pieces) if (name := _CHUNK.format(number)) in there]
        with ThreadPoolExecutor(REQUESTS_AT_ONCE, thread_name_prefix="lake") as pool:
            found = list(pool.map(self._read, names))
        return {name: _files(json.loads(data)) for name, data in zip(names, found, strict=True) if data}

    def _names(self) -> frozenset[str]:
        return frozenset(file.name for file in files_below(self.folder))

    def add(self, number: int, files: Sequence[AddAction], misfits: Misfits = NO_MISFITS) -> None:
        """This chunk is read. Raises LakeError."""
        if misfits:
            self._write(_MISFITS.format(number), misfits.to_json().encode())
        self._write(_CHUNK.format(number), json.dumps([asdict(file) for file in files]).encode())

    def adopt(self, number: int, rows: np.ndarray) -> None:
        """The chunk has these ``rows`` of what is adopted, 64-bit numbers. If it is read again after this, that still
        holds for all rows that have not changed since. Raises LakeError."""
        self._write(_ADOPTED.format(number), rows.astype("<u8").tobytes())

    def adopted(self, plan: ReadPlan) -> Iterator[np.ndarray | None]:
        """What ``adopt`` was told of each chunk, None if that is gone. Raises LakeError."""
        for number in range(len(plan.chunks)):
            data = self._read(_ADOPTED.format(number))
            yield None if data is None else np.frombuffer(data, "<u8")

    def correct(self, files: Sequence[AddAction], first_window: int, misfits: Misfits) -> None:
        """These files have the rows of all chunks, and show all changes before ``first_window``. Raises LakeError."""
        fields = {
            "files": [asdict(file) for file in files],
            "first_window": first_window,
            "misfits": misfits.to_json(),
        }
        self._write(_CORRECTED.format(time.time_ns()), json.dumps(fields).encode())

    def void(self, plan: ReadPlan) -> None:
        """Nothing that was read by the plan is of use. Raises LakeError."""
        self.begin(replace(plan, source="", chunks=()))

    def remove(self) -> None:
        """Raises LakeError."""
        names = [file.name for file in files_below(self.folder)]
        # the plan last: without one, what is left of the others is never read
        for some in ([name for name in names if name != _PLAN], [name for name in names if name == _PLAN]):
            delete_files(self.folder, some)
        remove_empty_folders(self.folder)

    def _read(self, name: str) -> bytes | None:
        return _content(self.folder, name)

    def _write(self, name: str, data: bytes) -> bool:
        """Whole or not at all. False if there is such a file: another process was faster, and its rows are as good."""
        return create_file(self.folder, name, data)


def plans(lake: Lake) -> Iterator[ReadPlan]:
    """Those of all snapshots in chunks that are not finished. One listing if there are none. Raises LakeError."""
    for file in files_below(lake.all_staging):
        folder, _, name = file.name.rpartition("/")
        if name == _PLAN and (plan := _plan_in(lake.all_staging / folder)) is not None:
            yield plan


@dataclass(frozen=True)
class SnapshotProgress:
    """Of a snapshot that is not finished: how many of its ``chunks`` are read."""

    chunks_read: int
    chunks: int

    def __str__(self) -> str:
        return f"{self.chunks_read:,} of {self.chunks:,} chunks"


def generation_of(state: TableState | None) -> str:
    """As ``ReadPlan`` has it."""
    return "" if state is None else str(state.generation)


def snapshot_progress(lake: Lake, states: Mapping[QualifiedName, TableState]) -> dict[QualifiedName, SnapshotProgress]:
    """Of the tables that are read in chunks now. ``states``: of those in the lake. Raises LakeError."""
    return {
        plan.name: SnapshotProgress(plan.pieces - len(ReadRecord(lake, plan.name).unread(plan)), plan.pieces)
        for plan in plans(lake)
        if not plan.is_void and plan.goes_on_from(states.get(plan.name))
    }


def _newest_correction(names: Set[str]) -> str | None:
    return max((name for name in names if name.startswith(_CORRECTED.partition("{")[0])), default=None)


def _plan_in(folder: Location) -> ReadPlan | None:
    data = _content(folder, _PLAN)
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
