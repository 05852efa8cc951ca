"""Messages of the output plugin as one Arrow array, with vectorised reads of their fixed fields."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

# the message types, by their first byte: a new one is added here, and to the decoder in ``logicalrep``
ROW_CHANGES = b"IUD"
CHANGES = ROW_CHANGES + b"T"
ANNOUNCEMENTS = b"RY"
# what ordinals count
COUNTED = CHANGES + b"M"
# the message types of protocol 1
KNOWN = b"BCO" + ANNOUNCEMENTS + COUNTED
# the message types that protocols 2 to 4 add
CONTROL = b"SEcAbpPKr"
# what begins a stream block, a prepared and a plain transaction, and what ends each
OPENERS, CLOSERS = b"SbB", b"EPC"
# the minimum length of each kind; Begin and Commit have exactly this length
_SHORTEST = {"B": 21, "C": 26, "O": 10, "M": 15, "R": 10, "Y": 7, "I": 8, "U": 8, "D": 8, "T": 6}
_EXACT = b"BC"


@dataclass(frozen=True)
class MessageBatch:
    """``start`` and ``length`` say where each message lies in ``buffer``; ``kind`` is its first byte."""

    messages: pa.Array
    buffer: npt.NDArray[np.uint8]
    start: Ints
    length: Ints
    kind: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, messages: pa.Array) -> MessageBatch:
        """Read an Arrow ``binary`` array without nulls. An empty message has kind 0."""
        wide = pa.types.is_large_binary(messages.type)
        _, offsets_buffer, data_buffer = messages.buffers()
        all_offsets = np.frombuffer(offsets_buffer, np.int64 if wide else np.int32)
        offsets: Ints = all_offsets[messages.offset : messages.offset + len(messages) + 1].astype(np.int64)
        data = np.frombuffer(data_buffer or b"", np.uint8)
        start, length = offsets[:-1], np.diff(offsets)
        kind = np.zeros(len(messages), np.uint8)
        kind[length > 0] = data[start[length > 0]]
        return cls(messages.cast(pa.binary()), data, start, length, kind)

    @property
    def count(self) -> int:
        return len(self.start)

    def where(self, kinds: bytes) -> Ints:
        """The indices of the messages of these kinds."""
        return np.flatnonzero(of_kinds(self.kind, kinds))

    def naming(self, kinds: bytes) -> tuple[Ints, Ints]:
        """The messages of these kinds, of those that name one relation, and its relid. Those too short for that are
        left out."""
        at = self.where(kinds)
        at = at[self.length[at] >= 5]
        return at, self.uint32(at, 1)

    def too_short(self) -> Ints:
        """The indices of messages too short for their fixed fields, or with a wrong fixed length. The reads below need
        a batch without any."""
        shortest, exact = np.zeros(256, np.int64), np.zeros(256, bool)
        for kind, length in _SHORTEST.items():
            shortest[ord(kind)] = length
        exact[list(_EXACT)] = True
        wrong = (self.length < shortest[self.kind]) | (exact[self.kind] & (self.length != shortest[self.kind]))
        return np.flatnonzero(wrong)

    def int64(self, at: Ints, offset: int) -> Ints:
        """Big-endian signed 64-bit integers at ``offset`` in each of the messages ``at``."""
        return self._integers(self.start[at] + offset, ">i8")

    def uint32(self, at: Ints, offset: int) -> Ints:
        return self._integers(self.start[at] + offset, ">u4")

    @property
    def loose_messages(self) -> Ints:
        """The indices of non-transactional ``pg_logical_emit_message`` messages: sent at once, with their own LSN."""
        at = self.where(b"M")
        loose: Ints = at[self.buffer[self.start[at] + 1] & 1 == 0]
        return loose

    def origin_names(self, at: Ints) -> pa.Array:
        """The names in Origin messages. Raises ArrowInvalid when one is not UTF-8."""
        ends = self.start[at] + self.length[at] - 1  # without the closing zero byte
        pairs = np.stack([self.start[at] + 9, ends], axis=1).reshape(-1).astype(np.int32)
        if not len(at):
            return pa.array([], pa.string())
        buffers = [None, pa.py_buffer(pairs), pa.py_buffer(self.buffer)]
        odd_and_even = pa.Array.from_buffers(pa.binary(), len(pairs) - 1, buffers)
        return odd_and_even.take(pa.array(np.arange(0, len(pairs) - 1, 2))).cast(pa.string())

    def exploded_relids(self, rows: Ints, repeats: Ints, relid: Ints) -> tuple[Ints, Flags]:
        """The relid of each row, and which rows have none. A Truncate has one row per relid, in order."""
        exploded = relid[rows]
        truncated = np.flatnonzero(self.kind[rows] == ord("T"))
        if not len(truncated):
            return exploded, exploded == 0
        nth = np.arange(len(rows)) - (np.cumsum(repeats) - repeats)[rows]
        exploded[truncated] = self._integers(self.start[rows[truncated]] + 6 + 4 * nth[truncated], ">u4")
        return exploded, exploded == 0

    def _integers(self, places: Ints, dtype: str) -> Ints:
        """The integers of this type that begin at ``places`` of the buffer, which need not be aligned."""
        size = np.dtype(dtype).itemsize
        every: npt.NDArray[np.int64] = np.ndarray((max(0, len(self.buffer) - size + 1),), dtype, self.buffer, strides=1)
        return every[places].astype(np.int64)


def of_kinds(kind: npt.NDArray[np.uint8], kinds: bytes) -> Flags:
    """Which of them are one of these few letters; a comparison for each takes a tenth of the time of ``np.isin``."""
    flags: Flags = np.logical_or.reduce([kind == each for each in kinds])
    return flags
