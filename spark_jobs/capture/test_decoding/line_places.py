"""The transaction and ordinal of each line in a batch, and which transactions end in the batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spark_jobs.capture.test_decoding.line_batch import BEGIN, COMMIT, LineBatch
from spark_jobs.logicalrep.errors import FieldError

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class OpenTransaction:
    """A transaction whose COMMIT line was not read yet. ``changes``: how many were, which is the next change's
    ordinal."""

    xid: int
    changes: int


@dataclass(frozen=True)
class LinePlaces:
    """``transaction`` and ``ordinal`` for each line, ``xid``, ``commit_lsn`` and ``commit_time`` for each transaction.
    Transaction 0 is the one that was open before the batch.

    ``commit_lsn`` is -1 where the transaction does not commit in this batch. ``commit_time`` is in microseconds since
    1970. ``open`` is the transaction still open after the batch.
    """

    transaction: Ints
    ordinal: Ints
    xid: Ints
    commit_lsn: Ints
    commit_time: Ints
    open: OpenTransaction | None

    @classmethod
    def of(
        cls,
        lines: LineBatch,
        changes: npt.NDArray[np.bool_],
        prepares: Ints,
        carried: OpenTransaction | None,
        window_end: int,
    ) -> LinePlaces:
        """``changes``: for each line, whether it counts for the ordinals. ``prepares``: the PREPARE TRANSACTION lines.
        ``carried``: the transaction that was open before the batch. ``window_end``: see ``within``.

        Raises LogicalRepError, also when a line stands in the wrong place.
        """
        begins, commits = lines.where(BEGIN), lines.where(COMMIT)
        ends = np.concatenate([commits, prepares])
        open_after = _open_after(lines, begins, ends, changes, carried)
        transaction = np.zeros(len(lines), np.int64)
        transaction[begins] = 1
        transaction = np.cumsum(transaction)
        xid = np.concatenate([[carried.xid if carried else 0], lines.begin_xids(begins)])
        before: Ints = np.cumsum(changes) - changes
        first = np.concatenate([[-(carried.changes if carried else 0)], before[begins]])
        commit_lsn, commit_time = np.full(len(xid), -1, np.int64), np.zeros(len(xid), np.int64)
        of_commits = lines.ends(commits)
        committed = transaction[commits]
        if (of_commits.xid != xid[committed]).any():
            raise FieldError("BEGIN and COMMIT name different transactions")
        commit_lsn[committed], commit_time[committed] = within(lines.lsn[commits], window_end), of_commits.time
        still_open = OpenTransaction(int(xid[-1]), int(changes.sum() - first[-1])) if open_after else None
        return cls(transaction, before - first[transaction], xid, commit_lsn, commit_time, still_open)


def within(commit_line: Ints, window_end: int) -> Ints:
    """The commit LSN of each transaction, from the LSN of its COMMIT line, which is where the commit record ends.

    A window has the transactions whose record starts in it, and its end may lie inside the last one's record. That
    transaction stays in the window, too: its place in the log is before whatever was seen at the window's end.
    """
    return np.minimum(commit_line, window_end) - 1


def _open_after(
    lines: LineBatch, begins: Ints, ends: Ints, changes: npt.NDArray[np.bool_], carried: OpenTransaction | None
) -> bool:
    """Whether a transaction is open after the batch. Raises FieldError when a line stands in the wrong place."""
    step = np.zeros(len(lines), np.int64)
    step[begins], step[ends] = 1, -1
    depth = np.cumsum(step) + (carried is not None)
    before: Ints = depth - step
    if before[begins].any() or (before[ends] != 1).any() or (before[changes] != 1).any():
        raise FieldError("a line stands outside a transaction, or a BEGIN inside one")
    return bool(depth[-1])
