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


def log_of(folder: Path, ordinals: range) -> ChangeLog:
    log = ChangeLog(str(folder / "log"))
    log.create()
    for ordinal in ordinals:
        rows = [
            {
                "window": ordinal,
                "commit_lsn": lsn,
                "ordinal": 0,
                "kind": "I",
                "relid": 1,
                "data": b"I",
                "commit_time": NOON + timedelta(seconds=seconds),
            }
            for lsn, seconds in COMMITS.get(ordinal, ())
        ]
        at = NOON.isoformat() if ordinal == 0 else None
        marker = WindowMarker(ordinal, Window(Lsn(100 * ordinal), Lsn(100 * ordinal + 100)), IDENTITY, begun_at=at)
        batches = [pa.RecordBatch.from_pylist(rows, schema=CHANGE_LOG_SCHEMA)] if rows else []
        assert log.land(IDENTITY, ordinal, [*batches, marker_row(marker)])
    return log
