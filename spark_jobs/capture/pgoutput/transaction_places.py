"""Turns Begin, Commit and Origin messages into columns: each message's transaction and its ordinal in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_jobs.capture.message_batch import COUNTED, Flags, MessageBatch
from spark_jobs.errors import DecodeError
from spark_jobs.logicalrep.lsn import Window

Ints = npt.NDArray[np.int64]

_POSTGRES_EPOCH = 946_684_800_000_000  # 2000-01-01 in microseconds since 1970


@dataclass(frozen=True)
class OpenTransaction:
    """The transaction that carries over to the next batch; ``changes`` is the ordinal of its next change."""

    commit_lsn: int
    commit_time: int
    xid: int
    origin: str | None
    origin_lsn: int | None
    changes: int


@dataclass(frozen=True)
class Places:
    """For each message its ``transaction`` and ``ordinal``, and whether it is ``loose``, outside any transaction.

    ``transaction`` is an index into the columns that follow ``loose``; 0 is the transaction that was open before the
    batch. ``origins`` and ``origin_lsns`` have an additional null in front.
    """

    transaction: Ints
    ordinal: Ints
    loose: Flags
    commit_lsns: Ints
    commit_times: Ints
    xids: Ints
    origins: pa.Array
    origin_lsns: pa.Array

    def take_origin(self, column: pa.Array, rows: Ints) -> pa.Array:
        if column.null_count == len(column):
            return pa.nulls(len(rows), column.type)
        return column.take(pa.array(np.where(self.loose[rows], 0, self.transaction[rows] + 1)))


class TransactionPlaces:
    """Follows the transactions of one window from batch to batch."""

    def __init__(self, window: Window, error: Callable[[int, str], DecodeError]) -> None:
        self._window, self._error = window, error
        self._last_lsn = -1
        self.open: OpenTransaction | None = None
        self.transactions = 0

    @property
    def lsn(self) -> int:
        """The LSN that errors name: the open transaction's commit LSN, otherwise the window's start."""
        return self.open.commit_lsn if self.open else int(self._window.lo)

    def of(self, batch: MessageBatch, unknown: Flags) -> Places:
        """``unknown`` messages may stand anywhere. Raises DecodeError, also when messages are out of order."""
        begins, commits = batch.where(b"B"), batch.where(b"C")
        step = np.zeros(batch.count, np.int64)
        step[begins], step[commits] = 1, -1
        depth = np.cumsum(step) + (self.open is not None)
        inside = depth - (step == 1) + (step == -1)  # transactions open before each message: 0 at Begin, else 1
        wanted = np.ones(batch.count, np.int64)
        wanted[begins] = 0
        loose = np.zeros(batch.count, bool)
        loose[batch.loose_messages] = True
        loose |= unknown & (inside == 0)
        wanted[loose] = 0
        if (inside != wanted).any():
            at = int(np.argmax(inside != wanted))
            raise self._error(self.lsn, f"a {chr(batch.kind[at])!r} message stands in the wrong place")
        transaction = np.cumsum(step == 1)
        ordinal = self._ordinals(batch, transaction, begins)
        return self._columns(batch, begins, transaction, np.where(loose, 0, ordinal), loose)

    def _ordinals(self, batch: MessageBatch, transaction: Ints, begins: Ints) -> Ints:
        counted = np.zeros(batch.count + 1, np.int64)
        counted[1:][batch.where(COUNTED)] = 1
        before = np.cumsum(counted)[:-1]
        first = np.concatenate([[-(self.open.changes if self.open else 0)], before[begins]])
        ordinals: Ints = before - first[transaction]
        return ordinals

    def _columns(self, batch: MessageBatch, begins: Ints, transaction: Ints, ordinal: Ints, loose: Flags) -> Places:
        """Build the columns; the last transaction becomes ``open`` if it has no Commit in this batch."""
        carried = self.open or OpenTransaction(self._last_lsn, 0, 0, None, None, 0)
        lsns = np.concatenate([[carried.commit_lsn], batch.int64(begins, 1)])
        times = np.concatenate([[carried.commit_time], batch.int64(begins, 9) + _POSTGRES_EPOCH])
        xids = np.concatenate([[carried.xid], batch.uint32(begins, 17)])
        self._check_commits(batch, lsns, transaction)
        origins, origin_lsns = self._origins(batch, carried, len(lsns), transaction)
        self.transactions += len(begins)
        self._last_lsn = int(lsns[-1])
        commits = batch.where(b"C")
        last_begin = int(begins[-1]) if len(begins) else -1
        if (len(commits) and commits[-1] > last_begin) or (not len(begins) and self.open is None):
            self.open = None
        else:
            last = (int(lsns[-1]), int(times[-1]), int(xids[-1]), origins[-1].as_py(), origin_lsns[-1].as_py())
            changes = int(ordinal[-1]) + (batch.kind[-1] in COUNTED)
            self.open = OpenTransaction(*last, changes)
        return Places(transaction, ordinal, loose, lsns, times, xids, origins, origin_lsns)

    def _check_commits(self, batch: MessageBatch, lsns: Ints, transaction: Ints) -> None:
        outside = (lsns[1:] < self._window.lo) | (lsns[1:] >= self._window.hi)
        if outside.any():
            raise self._error(int(lsns[1:][outside][0]), "the transaction is not of this window")
        if (np.diff(lsns) <= 0).any():
            raise self._error(int(lsns[1:][np.diff(lsns) <= 0][0]), "the transaction comes out of commit order")
        commits = batch.where(b"C")
        wrong = batch.int64(commits, 2) != lsns[transaction[commits]]
        if wrong.any():
            raise self._error(int(lsns[transaction[commits][wrong][0]]), "Begin and Commit name different LSNs")

    def _origins(
        self, batch: MessageBatch, carried: OpenTransaction, size: int, transaction: Ints
    ) -> tuple[pa.Array, pa.Array]:
        """Origin names and LSNs by transaction index, with a null in front. An LSN of 0 means unknown: null."""
        at = batch.where(b"O")
        index = np.full(size + 1, 0, np.int64)  # into: null, carried, the origins of this batch
        index[1] = 1
        index[transaction[at] + 1] = np.arange(len(at)) + 2
        try:
            names = batch.origin_names(at)
        except pa.ArrowInvalid:
            raise self._error(self.lsn, "an origin's name is not UTF-8") from None
        lsns = batch.int64(at, 1)
        known = pa.array(lsns, mask=lsns == 0)
        places = pa.array(index)
        return (
            pa.concat_arrays([pa.array([None, carried.origin], pa.string()), names]).take(places),
            pa.concat_arrays([pa.array([None, carried.origin_lsn], pa.int64()), known]).take(places),
        )
