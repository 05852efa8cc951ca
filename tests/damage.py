"""Damaged bytes for the robustness tests, and the undamaged ones to start from: one of each kind of message."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.logicalrep.messages import (
    UNCHANGED_TOAST,
    Begin,
    BeginPrepare,
    BinaryValue,
    Commit,
    CommitPrepared,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    Origin,
    Prepare,
    RollbackPrepared,
    StreamAbort,
    StreamCommit,
    Streamed,
    StreamPrepare,
    StreamStart,
    StreamStop,
    Truncate,
    TupleData,
    Type,
    Update,
)
from spark_jobs.logicalrep.pgoutput.read_message import read_message, read_streamed_message
from spark_jobs.logicalrep.relation import Relation, RelationColumn
from tests.golden.golden_file import recordings
from tests.wire import write_message

_ROW: TupleData = (b"12", None, UNCHANGED_TOAST, BinaryValue(b"\0\1"))
_COLUMNS = tuple(RelationColumn(f"c{at}", 25, -1, at == 0) for at in range(len(_ROW)))
_DATA = (
    Relation(16384, "public", "t", "d", _COLUMNS),
    Type(90001, "public", "mood"),
    Insert(16384, _ROW),
    Update(16384, None, None, _ROW),
    Update(16384, _ROW, None, _ROW),
    Update(16384, None, _ROW, _ROW),
    Delete(16384, _ROW, None),
    Delete(16384, None, _ROW),
    Truncate((16384, 16385), cascade=True, restart_identity=False),
    LogicalMessage(True, Lsn(7), "prefix", b"content"),
)
_PREPARED = (Lsn(5), Lsn(6), 7, 700, "gid")
_OF_TRANSACTIONS: tuple[Message, ...] = (
    Begin(Lsn(5), 6, 700),
    Commit(Lsn(5), Lsn(6), 7),
    Origin(Lsn(5), "elsewhere"),
    StreamStart(700, True),
    StreamStop(),
    StreamCommit(700, Lsn(5), Lsn(6), 7),
    StreamAbort(700, 701),
    StreamAbort(700, 701, Lsn(5), 6),
    BeginPrepare(*_PREPARED),
    Prepare(*_PREPARED),
    CommitPrepared(*_PREPARED),
    RollbackPrepared(Lsn(5), Lsn(6), 7, 8, 700, "gid"),
    StreamPrepare(*_PREPARED),
)


@dataclass(frozen=True)
class Wire:
    """One message as a server sends it. ``in_block``: it stands between Stream Start and Stream Stop."""

    data: bytes
    in_block: bool

    def read(self, data: bytes) -> Message | Streamed:
        """Other bytes in its place, with the newest protocol."""
        return (read_streamed_message if self.in_block else read_message)(data, proto_version=4)


def every_kind() -> tuple[Wire, ...]:
    """Each message once, data messages inside a stream block as well."""
    plain = [Wire(write_message(message), in_block=False) for message in (*_OF_TRANSACTIONS, *_DATA)]
    return (*plain, *(Wire(write_message(Streamed(701, message)), in_block=True) for message in _DATA))


def recorded(theme: str) -> tuple[Wire, ...]:
    """Each message that any server sent for the theme with pgoutput, once."""
    wires: dict[Wire, None] = {}
    for recording in recordings(theme):
        in_block = False
        for row in recording.rows if recording.plugin == "pgoutput" else ():
            kind = row.data[:1]
            in_block = in_block and kind != b"E"
            wires[Wire(row.data, in_block)] = None
            in_block = in_block or kind == b"S"
    return tuple(wires)


def damages(data: bytes) -> Iterator[bytes]:
    """Cut at every length, one byte appended, each byte changed: its lowest bit, its highest, all of it, to zero."""
    yield from (data[:size] for size in range(len(data)))
    yield from (data + extra for extra in (b"\0", b"n", b"\xff"))
    for at, byte in enumerate(data):
        for other in {byte ^ 1, byte ^ 0x80, byte ^ 0xFF, 0} - {byte}:
            yield data[:at] + bytes([other]) + data[at + 1 :]
