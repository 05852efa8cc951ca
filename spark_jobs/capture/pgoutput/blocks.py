"""Which messages of a batch stand in a stream block or a prepared transaction, and their form in protocol 1.

A block is what stands between Stream Start and Stream Stop (``S E``), Begin Prepare and Prepare (``b P``), or Begin and
Commit (``B C``). Blocks do not nest. Inside ``S E`` every message but Origin carries the xid of its (sub)transaction
in the four bytes after its type; protocol 1 has none there.
https://www.postgresql.org/docs/current/protocol-logical-replication.html#PROTOCOL-LOGICAL-MESSAGES-FLOW
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.capture.message_batch import (
    ANNOUNCEMENTS,
    CHANGES,
    CLOSERS,
    CONTROL,
    KNOWN,
    OPENERS,
    MessageBatch,
)

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_BETWEEN_BLOCKS = b"cApKr"
_INSIDE_BLOCKS = b"O" + ANNOUNCEMENTS + CHANGES
XID_BYTES = 4


@dataclass(frozen=True)
class Block:
    """A block that is still open at the end of a batch: the type of its first message, and its xid (0 for ``B``)."""

    opener: str
    xid: int


@dataclass(frozen=True)
class Blocks:
    """For each message of ``batch``, the block that it stands in; a block's first and last message belong to it.

    ``opener`` is the type of the block's first message, 0 between blocks. ``xid`` is the block's transaction.
    ``misplaced`` is the index of the first message in a wrong place.
    """

    batch: MessageBatch
    opener: npt.NDArray[np.uint8]
    xid: Ints
    misplaced: int | None
    open_after: Block | None

    @classmethod
    def of(cls, batch: MessageBatch, open_before: Block | None, xids: dict[int, int]) -> Blocks:
        """``xids``: for each index of a Stream Start or Begin Prepare in this batch, the xid that it names."""
        count = batch.count
        places = np.arange(count)
        opens, closes = _is(batch, OPENERS), _is(batch, CLOSERS)
        opener_at = np.maximum.accumulate(np.where(opens, places, -1))
        # a closer still belongs to its block
        closed_at = np.concatenate([[-2], np.maximum.accumulate(np.where(closes, places, -2))[:-1]])
        # an opener_at of -1 is the block that was open before the batch: open until the first closer (closed_at -2)
        inside = opener_at > closed_at
        if open_before is None:
            inside &= opener_at >= 0
        names = np.zeros(count + 1, np.int64)
        names[list(xids)] = list(xids.values())
        kinds = np.append(batch.kind, np.uint8(0))
        if open_before is not None:
            kinds[-1], names[-1] = ord(open_before.opener), open_before.xid
        opener = np.where(inside, kinds[opener_at], 0).astype(np.uint8)
        xid = np.where(inside, names[opener_at], 0)
        misplaced = _misplaced(batch, opens, closes, opener, open_before)
        last_open = bool(inside[-1]) and not closes[-1]
        return cls(batch, opener, xid, misplaced, Block(chr(opener[-1]), int(xid[-1])) if last_open else None)

    @property
    def passed_on(self) -> Ints:
        """The messages that keep form and place: those of plain transactions, and what stands between blocks."""
        passed: Ints = np.flatnonzero((self.opener == ord("B")) | ((self.opener == 0) & ~_is(self.batch, CONTROL)))
        return passed

    def members(self) -> dict[int, Ints]:
        """By xid, the indices of the messages in stream blocks and prepared transactions, in order."""
        indices = np.flatnonzero(((self.opener == ord("S")) | (self.opener == ord("b"))) & ~_is(self.batch, CONTROL))
        if not len(indices):
            return {}
        owners = self.xid[indices]
        order = np.argsort(owners, kind="stable")
        starts = np.flatnonzero(np.diff(owners[order], prepend=-1))
        parts = np.split(indices[order], starts[1:])
        return dict(zip(owners[order][starts].tolist(), parts, strict=True))

    def carry_xid(self, at: Ints) -> Flags:
        """Which of the messages ``at`` have an xid after their type. Unknown types are taken to have one if they are
        long enough."""
        room = self.batch.length[at] > XID_BYTES
        streamed = self.opener[at] == ord("S")
        carry: Flags = streamed & (self.batch.kind[at] != ord("O")) & (room | _is(self.batch, KNOWN)[at])
        return carry

    def as_protocol_1(self, at: Ints) -> tuple[pa.Array, Ints]:
        """The messages ``at`` without their xids, copied, and the xid under which each was sent.

        Each message must be long enough to hold its xid.
        """
        carries = self.carry_xid(at)
        xids = self.xid[at]
        xids[carries] = self.batch.uint32(at[carries], 1)
        messages = self.batch.messages.take(pa.array(at))
        if carries.any():
            stripped = pc.binary_replace_slice(messages, 1, 1 + XID_BYTES, b"")
            messages = stripped if carries.all() else pc.if_else(pa.array(carries), stripped, messages)
        return messages, xids


def _misplaced(
    batch: MessageBatch, opens: Flags, closes: Flags, opener: npt.NDArray[np.uint8], open_before: Block | None
) -> int | None:
    """The first message in the wrong place. Openers and closers must alternate, each closer must fit the open block,
    changes and announcements must stand in a block, and what ends a streamed or prepared transaction between blocks."""
    wrong = np.where(opener != 0, _is(batch, _BETWEEN_BLOCKS), _is(batch, _INSIDE_BLOCKS))
    ends = np.flatnonzero(opens | closes)
    before = np.concatenate([[open_before is not None], opens[ends][:-1]]) if len(ends) else np.zeros(0, bool)
    wrong[ends] = opens[ends] == before
    fitting = np.zeros(256, np.uint8)
    fitting[list(CLOSERS)] = list(OPENERS)
    wrong |= closes & (opener != fitting[batch.kind])
    return int(np.argmax(wrong)) if wrong.any() else None


def _is(batch: MessageBatch, kinds: bytes) -> Flags:
    table = np.zeros(256, bool)
    table[list(kinds)] = True
    flags: Flags = table[batch.kind]
    return flags
