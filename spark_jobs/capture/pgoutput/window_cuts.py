"""Cuts what one call has sent for several windows where each ends.

A window holds the transactions whose commit record begins before its end, and so does each message that belongs to
none. The plugin sends both in the order of the WAL, with the LSN where that record begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_jobs.capture.message_batch import CLOSERS, OPENERS, MessageBatch
from spark_jobs.logicalrep.lsn import Lsn

Ints = npt.NDArray[np.int64]

# what makes a transaction part of the window, and where it has the LSN of the commit record
_COMMIT_LSNS = {b"B": 1, b"c": 6, b"K": 2}
_LOOSE_LSN = 2


class WindowCuts:
    """The messages of one call, as the plugin sent them, window by window."""

    def __init__(self) -> None:
        self._kept: list[pa.RecordBatch] = []  # sent already, but of the next window
        self._inside = False  # of a block: S to E, b to P, B to C

    def before(self, end: Lsn, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Those of the window that ends at ``end``. ``batches`` is left with the one that reaches beyond it."""
        remainder, self._kept = self._kept, []
        for batch in chain(remainder, batches):
            at = self._place(MessageBatch.of(batch.column(0)), end)
            if at is None:
                yield batch
                continue
            self._kept = [batch.slice(at)]
            yield batch.slice(0, at)
            return

    def rest(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """All that follows, for the call's last window."""
        return chain(self._kept, batches)

    def _place(self, messages: MessageBatch, end: Lsn) -> int | None:
        """The first message of the next window."""
        if not messages.count:
            return None
        step = np.zeros(messages.count, np.int64)
        step[messages.where(OPENERS)], step[messages.where(CLOSERS)] = 1, -1
        depth = np.cumsum(step) + self._inside
        loose = messages.where(b"M")
        places = [(loose[depth[loose] == 0], _LOOSE_LSN)]
        places += [(messages.where(kind), offset) for kind, offset in _COMMIT_LSNS.items()]
        firsts = [at[0] for place, offset in places if len(at := _from(messages, place, offset, end))]
        self._inside = not firsts and bool(depth[-1])
        return int(min(firsts)) if firsts else None


def _from(messages: MessageBatch, at: Ints, offset: int, end: Lsn) -> Ints:
    """Which of the messages ``at`` have this LSN or a later one; those that are too short are left to others."""
    at = at[messages.length[at] >= offset + 8]
    return at[messages.int64(at, offset) >= end]
