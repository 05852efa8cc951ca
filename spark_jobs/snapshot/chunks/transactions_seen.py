"""Which landed transactions a snapshot of the source does not show.

A commit is decoded as soon as its record is flushed. Other sessions see it a moment later, or much later where it waits
for a synchronous standby. So the LSN of a commit does not tell whether a snapshot shows it; its transaction ID does.
https://www.postgresql.org/docs/current/functions-info.html#FUNCTIONS-PG-SNAPSHOT
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from spark_jobs.change_log.log import ChangeLog
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.postgres.connection import Connection, source_errors

_EPOCH = 1 << 32
_SNAPSHOT = "SELECT pg_catalog.pg_current_snapshot()::text, pg_catalog.pg_is_in_recovery()"


@dataclass(frozen=True)
class TransactionsSeen:
    """The snapshot shows the transactions below ``xmax`` that are not ``in_progress``; both are 64-bit IDs."""

    xmax: int
    in_progress: frozenset[int]

    @classmethod
    def of(cls, connection: Connection) -> TransactionsSeen:
        """Those of the snapshot of the connection's transaction. Later snapshots show all of them, too."""
        with source_errors("the snapshot could not be read"):
            text, is_standby = connection.execute(_SNAPSHOT).fetchall()[0]
        xmin, xmax, running = text.split(":")
        if is_standby:  # which does not list those in progress
            return cls(int(xmin), frozenset())
        return cls(int(xmax), frozenset(map(int, filter(None, running.split(",")))))

    def first_window_unseen(self, log: ChangeLog, relid: int, last: WindowMarker) -> int:
        """The first window of this chapter that may hold a change of the table which the snapshot does not show.
        ``last``: the log's last window when the snapshot was taken, or an earlier one. An earlier chapter may be of
        another server, or of transactions that the server has no longer: their numbers are others' now."""
        rows = log.read([relid], last.identity.chapter, last.ordinal, ["window", "xid"])
        rows = rows.filter(pc.is_valid(rows.column("xid")))
        if not rows.num_rows:
            return last.ordinal + 1
        unseen = self.are_unseen(rows.column("xid").to_numpy())
        windows = rows.column("window").to_numpy()[unseen]
        return int(windows.min()) if len(windows) else last.ordinal + 1

    def are_unseen(self, xids: np.ndarray) -> np.ndarray:
        """Which of ``xids`` the snapshot does not show. They have 32 bits, as they are decoded; each is at most half
        their range away from ``xmax``."""
        whole = (self.xmax & ~(_EPOCH - 1)) | xids
        whole = np.where(whole - self.xmax >= _EPOCH // 2, whole - _EPOCH, whole)
        whole = np.where(self.xmax - whole > _EPOCH // 2, whole + _EPOCH, whole)
        return np.asarray((whole >= self.xmax) | np.isin(whole, np.fromiter(self.in_progress, np.int64)))
