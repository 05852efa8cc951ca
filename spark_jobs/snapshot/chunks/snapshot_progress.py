"""How far snapshots in chunks are, for whoever watches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from spark_jobs.configuration import Lake
from spark_jobs.lake.table_state import TableState
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.snapshot.chunks.partial_table import is_partial
from spark_jobs.snapshot.chunks.read_plan import ReadPlan
from spark_jobs.snapshot.chunks.read_record import ReadRecord, plans

_CHUNKS_OF_PACE = 32  # so many tell how long the others take: a pause between two runs is forgotten


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
        last = record.ended()[-_CHUNKS_OF_PACE:]
        seconds = (last[-1] - last[0]) / 1000 / (len(last) - 1) * left if len(last) > 1 else None
        return cls(chunks - left, chunks, seconds, partial)

    def __str__(self) -> str:
        parts = [f"{self.chunks_read:,} of {self.chunks:,} chunks"]
        parts += [] if self.seconds_left is None else [f"{timedelta(seconds=round(self.seconds_left))} left"]
        return ", ".join([*parts, *([f"so far in {self.partial}"] if self.partial else [])])


def snapshot_progress(lake: Lake, states: Mapping[QualifiedName, TableState]) -> dict[QualifiedName, SnapshotProgress]:
    """Of the tables that are read in chunks now. ``states``: of those in the lake. Raises LakeError."""
    return {
        plan.name: SnapshotProgress.of(ReadRecord(lake, plan.name), plan)
        for plan in plans(lake)
        if not plan.is_void and plan.goes_on_from(states.get(plan.name))
    }
