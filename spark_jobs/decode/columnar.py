"""The fast decoder: turns Insert, Update and Delete messages of one relation version into vectors, copying nothing.

It must equal ``read_change`` (``logicalrep.pgoutput.read_message``) on every input: the same checks are made here on
whole vectors (lengths inside their own message, exact consumption, relation, number of columns, tuple and column
kinds). When a check fails, the messages go to ``read_change`` one by one, in order, for the precise error.

Values stay in the buffer until ``gather`` copies those that are needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_jobs.decode.threads import in_threads
from spark_jobs.decode.tuple_vectors import ABSENT, DamagedError, MessageBytes, TupleVectors, has_value, require, walk
from spark_jobs.errors import DecodeError
from spark_jobs.logicalrep.errors import LogicalRepError
from spark_jobs.logicalrep.lsn import Position
from spark_jobs.logicalrep.pgoutput.read_message import read_change
from spark_jobs.logicalrep.relation import Relation

INSERT, UPDATE, DELETE = (ord(kind) for kind in "IUD")
OLD_KEY, OLD_TUPLE, NEW = (ord(kind) for kind in "KON")

MESSAGES_AT_ONCE = 32_768  # decoded in lockstep, so that the vectors of one chunk stay in the processor's cache
_HEADER_SIZE = 6  # message type, relid, tuple kind
_SHORTEST = _HEADER_SIZE + 2

Locate = Callable[[int], Position]


@dataclass(frozen=True)
class Changes:
    """Decoded changes, one slot per message: ``kinds`` I, U or D; ``old_kinds`` K, O or ABSENT.

    ``new`` is ABSENT for deletes. ``old`` has slots only for messages with an old tuple; ``old_slots`` maps each
    message to its slot there, or to -1.
    """

    data: np.ndarray
    kinds: np.ndarray
    old_kinds: np.ndarray
    old_slots: np.ndarray
    new: TupleVectors
    old: TupleVectors

    def __len__(self) -> int:
        return len(self.kinds)

    def of_old(self, flags: np.ndarray) -> np.ndarray:
        """``flags``, one per old tuple, for each change; false for changes without an old tuple."""
        return np.asarray(np.append(flags, False)[self.old_slots])

    def in_old(self, column: int) -> np.ndarray:
        """Which changes have the column's value in their old tuple."""
        return self.of_old(has_value(self.old.kinds[column]))

    def spans(self, column: int, slots: np.ndarray, from_old: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Where the column's values lie in these changes, as starts, lengths and kinds: in the old tuple ``from_old``,
        which these changes must have, else in the new one."""
        new, old = self.new, self.old
        if not from_old.any():
            return new.starts[column, slots], new.lengths[column, slots], new.kinds[column, slots]
        at = np.where(from_old, self.old_slots[slots], 0)
        return (
            np.where(from_old, old.starts[column, at], new.starts[column, slots]),
            np.where(from_old, old.lengths[column, at], new.lengths[column, slots]),
            np.where(from_old, old.kinds[column, at], new.kinds[column, slots]),
        )


def message_bounds(messages: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """The bytes (not copied) and the n + 1 int64 offsets of a binary or large_binary array without nulls."""
    wide = messages.type == pa.large_binary()
    _, offsets, data = messages.buffers()
    if not len(messages):
        return np.zeros(0, dtype=np.uint8), np.zeros(1, dtype=np.int64)
    dtype = np.int64 if wide else np.int32
    bounds = np.frombuffer(offsets, dtype=dtype)[messages.offset : messages.offset + len(messages) + 1]
    return np.frombuffer(data if data is not None else b"", dtype=np.uint8), bounds.astype(np.int64)


def decode_changes(
    data: np.ndarray,
    begins: np.ndarray,
    ends: np.ndarray,
    relation: Relation,
    locate: Locate,
    *,
    at_once: int = MESSAGES_AT_ONCE,
) -> Changes:
    """Decode the messages ``data[begins[i]:ends[i]]``, all of ``relation``, ``at_once`` in lockstep.

    ``locate`` returns the position of message *i*; it is called only for an error. Raises DecodeError.
    """
    message = MessageBytes(data)
    kinds, old_kinds = _tuple_markers(message, begins, ends, relation, locate)
    has_old = old_kinds != ABSENT
    old_slots = np.where(has_old, np.cumsum(has_old) - 1, -1)
    columns = len(relation.columns)
    changes = Changes(
        data,
        kinds,
        old_kinds,
        old_slots,
        new=TupleVectors.absent(columns, len(begins)),
        old=TupleVectors.absent(columns, int(has_old.sum())),
    )

    def walk_chunk(low: int) -> None:
        chunk = slice(low, min(low + at_once, len(begins)))
        try:
            _walk_chunk(message, begins[chunk], ends[chunk], changes, low)
        except DamagedError:
            raise _precise_error(data, begins, ends, chunk, relation, locate) from None

    in_threads(walk_chunk, range(0, len(begins), at_once))
    return changes


def _tuple_markers(
    message: MessageBytes, begins: np.ndarray, ends: np.ndarray, relation: Relation, locate: Locate
) -> tuple[np.ndarray, np.ndarray]:
    """The type of each message, and the kind of its old tuple or ABSENT."""
    try:
        require(ends - begins >= _SHORTEST)
        kinds = message.data[begins]
        require(message.uint32(begins + 1) == relation.relid)
        marker = message.data[begins + 5]
        old = (marker == OLD_KEY) | (marker == OLD_TUPLE)
        insert, update, delete = kinds == INSERT, kinds == UPDATE, kinds == DELETE
        require((insert & (marker == NEW)) | (update & (old | (marker == NEW))) | (delete & old))
    except DamagedError:
        raise _precise_error(message.data, begins, ends, slice(0, len(begins)), relation, locate) from None
    return kinds, np.where(old, marker, ABSENT).astype(np.uint8)


def _walk_chunk(message: MessageBytes, begin: np.ndarray, end: np.ndarray, changes: Changes, low: int) -> None:
    """Walk the old tuples of those messages that have one, then the new tuples. Each message must end with its last
    tuple."""
    high = low + len(begin)
    at = begin + _HEADER_SIZE
    with_old = np.flatnonzero(changes.old_kinds[low:high] != ABSENT)
    if len(with_old):
        first_slot = int(changes.old_slots[low + with_old[0]])
        slots = slice(first_slot, first_slot + len(with_old))
        at[with_old] = walk(message, at[with_old], end[with_old], changes.old, slots)
    is_delete = changes.kinds[low:high] == DELETE
    moved = with_old[~is_delete[with_old]]
    if len(moved):
        require(at[moved] < end[moved])
        require(message.data[at[moved]] == NEW)
        at[moved] += 1
    if is_delete.any():
        rows = np.flatnonzero(~is_delete)
        at[rows] = walk(message, at[rows], end[rows], changes.new, low + rows)
    else:
        at = walk(message, at, end, changes.new, slice(low, high))
    require(at == end)


def _precise_error(
    data: np.ndarray, begins: np.ndarray, ends: np.ndarray, rows: slice, relation: Relation, locate: Locate
) -> DecodeError:
    for row in range(rows.start, rows.stop):
        fault = _fault(data[begins[row] : ends[row]].tobytes(), relation)
        if fault is not None:
            return DecodeError(
                f"change at {locate(row)} of {relation.nspname}.{relation.relname} is not understood: {fault}",
                hint="the change log keeps it unparsed; report it with the server's version",
            )
    # the two decoders disagree: a bug of ours, so stop here
    return DecodeError(
        f"changes of {relation.nspname}.{relation.relname} from {locate(rows.start)} on are refused by the columnar"
        " decoder only",
        hint="report it with the server's version",
    )


def _fault(message: bytes, relation: Relation) -> LogicalRepError | None:
    try:
        read_change(message, relation)
    except LogicalRepError as error:
        return error
    return None
