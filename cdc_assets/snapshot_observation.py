"""How much of a large table's snapshot is read, on the page of the table's asset: observations, whose numbers the UI
plots. A run that has read for an hour ends, so its log alone would not tell."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import dagster as dg

from spark_jobs.configuration import Lake
from spark_jobs.errors import CdcError
from spark_jobs.progress import Progress, Step
from spark_jobs.qualified_name import QualifiedName

if TYPE_CHECKING:
    from spark_jobs.snapshot.chunks.snapshot_progress import SnapshotProgress

_SECONDS = 60.0  # between two observations: each is an event that Dagster stores


def observed(
    progress: Progress,
    lake: Lake,
    keys: Mapping[QualifiedName, dg.AssetKey],
    observe: Callable[[dg.AssetObservation], object],
    clock: Callable[[], float] = time.monotonic,
) -> Progress:
    """``progress``, which also has the tables with these ``keys`` observed while they are read in chunks."""
    last: dict[QualifiedName, tuple[float, int]] = {}  # when, and how much was read

    def shown(step: Step, /) -> None:
        progress(step)
        if step.table is None or step.table not in keys:
            return
        now = clock()
        since, size = last.setdefault(step.table, (now, step.done))
        if now - since < _SECONDS or step.done <= size:
            return
        last[step.table] = now, step.done
        pace = round((step.done - size) / max(now - since, 1e-3))
        with suppress(CdcError):  # a storage that does not answer now fails what asks it next
            if (known := progress_of(lake, step.table)) is not None:
                text = f"{step.table} is read in chunks: {known}"
                metadata = {**reading(known), "bytes_per_second": pace}
                observe(dg.AssetObservation(keys[step.table], description=text, metadata=metadata))

    return shown


def progress_of(lake: Lake, name: QualifiedName) -> SnapshotProgress | None:
    """None if no snapshot of it is read in chunks. Raises LakeError."""
    from spark_jobs.snapshot.chunks.read_record import ReadRecord
    from spark_jobs.snapshot.chunks.snapshot_progress import SnapshotProgress

    record = ReadRecord(lake, name)
    plan = record.plan()
    return None if plan is None or plan.is_void else SnapshotProgress.of(record, plan)


def reading(progress: SnapshotProgress) -> dict[str, int | str]:
    left = {} if progress.seconds_left is None else {"seconds_left": round(progress.seconds_left)}
    partial = {"partial_table": progress.partial} if progress.partial else {}
    return {"chunks_read": progress.chunks_read, "chunks": progress.chunks, **left, **partial}
