"""The plan of a snapshot in chunks: which ranges of a table are read, with which columns, and what makes it void."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from datetime import datetime

from spark_jobs.lake.table_state import TableState
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.fingerprint import Fingerprint
from spark_jobs.schema.fingerprint_differences import differences
from spark_jobs.snapshot.chunks.planned_columns import PlannedColumns
from spark_jobs.snapshot.export import CtidRange, SnapshotValue


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
        """Whether the table is still as it was when this plan was made or altered, and is still to be written so:
        ``other`` is for what it is now."""
        same = self._is_of_same_rows(other) and self.word == other.word and self.columns.are_written_as(other.columns)
        return same and self._leaves.items() <= other._leaves.items()

    def altered_as(self, other: ReadPlan) -> ReadPlan | None:
        """The plan that reads on, as the table is now, which ``other`` was made for. None if what was read is of no use
        to it: DDL that is followed in place changes no row that was read, but gives it other columns, and another mode
        or engine another writer. Partitions that were created have no chunk, as the change log has all their rows."""
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
        columns = self.columns if self.columns.are_written_as(other.columns) else other.columns
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


def generation_of(state: TableState | None) -> str:
    """As ``ReadPlan`` has it."""
    return "" if state is None else str(state.generation)
