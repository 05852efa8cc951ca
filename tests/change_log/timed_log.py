"""A log whose commits are not in the order of their clocks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

from spark_jobs.change_log.log import ChangeLog, marker_row
from spark_jobs.change_log.schema import CHANGE_LOG_SCHEMA
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.logicalrep.lsn import Lsn, Window
from tests.change_log.identity import IDENTITY

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
# per window: commit LSN and seconds after noon; the clock of 210 is behind that of 120, windows 3 to 9 are empty
COMMITS = {1: ((110, 0), (120, 9)), 2: ((210, 8), (220, 20))}


def log_of(folder: Path, ordinals: range, begun: datetime = NOON) -> ChangeLog:
    log = ChangeLog(str(folder / "log"))
    log.create()
    for ordinal in ordinals:
        at = begun.isoformat() if ordinal == 0 else None
        marker = WindowMarker(ordinal, Window(Lsn(100 * ordinal), Lsn(100 * ordinal + 100)), IDENTITY, begun_at=at)
        assert log.land(IDENTITY, ordinal, [*rows_of(ordinal, COMMITS.get(ordinal, ())), marker_row(marker)])
    return log


def rows_of(window: int, commits: tuple[tuple[int, int], ...]) -> list[pa.RecordBatch]:
    """A change for each commit LSN, committed so many seconds after noon; none if there are none."""
    row = {"window": window, "ordinal": 0, "kind": "I", "relid": 1, "data": b"I"}
    rows = [{**row, "commit_lsn": lsn, "commit_time": NOON + timedelta(seconds=after)} for lsn, after in commits]
    return [pa.RecordBatch.from_pylist(rows, schema=CHANGE_LOG_SCHEMA)] if rows else []
