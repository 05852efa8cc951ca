"""Messages of pgoutput as bytes, packed here: also such as no server sends."""

from __future__ import annotations

import struct


def begin(lsn: int, xid: int = 7, time: int = 5) -> bytes:
    return struct.pack("!cqqI", b"B", lsn, time, xid)


def commit(lsn: int, time: int = 5) -> bytes:
    return struct.pack("!cBqqq", b"C", 0, lsn, lsn + 8, time)


def relation(relid: int, columns: int) -> bytes:
    names = b"public\0t%d\0d" % relid
    return (
        b"R"
        + struct.pack("!I", relid)
        + names
        + struct.pack("!h", columns)
        + b"\1id\0\0\0\0\x17\xff\xff\xff\xff" * columns
    )


def change(kind: str, relid: int, payload: bytes = b"N\0\0") -> bytes:
    return kind.encode() + struct.pack("!I", relid) + payload.ljust(3, b"\0")


def truncate(*relids: int) -> bytes:
    return struct.pack(f"!cIB{len(relids)}I", b"T", len(relids), 0, *relids)


def emitted(lsn: int, transactional: bool) -> bytes:
    return struct.pack("!cBq", b"M", transactional, lsn) + b"p\0" + struct.pack("!I", 1) + b"x"


def start(xid: int, first: bool = True) -> bytes:
    return struct.pack("!cIB", b"S", xid, first)


STOP = b"E"


def streamed(xid: int, message: bytes) -> bytes:
    return message[:1] + struct.pack("!I", xid) + message[1:]


def stream_commit(xid: int, lsn: int) -> bytes:
    return struct.pack("!cIBqqq", b"c", xid, 0, lsn, lsn + 8, 5)


def stream_abort(xid: int, subxid: int) -> bytes:
    return struct.pack("!cII", b"A", xid, subxid)


def begin_prepare(xid: int, gid: bytes = b"g") -> bytes:
    return struct.pack("!cqqqI", b"b", 0x110, 0x118, 5, xid) + gid + b"\0"


def prepare(xid: int, gid: bytes = b"g", kind: bytes = b"P") -> bytes:
    return struct.pack("!cBqqqI", kind, 0, 0x110, 0x118, 5, xid) + gid + b"\0"


def commit_prepared(xid: int, lsn: int, gid: bytes = b"g") -> bytes:
    return struct.pack("!cBqqqI", b"K", 0, lsn, lsn + 8, 5, xid) + gid + b"\0"


R = relation(1, 1)
I = change("I", 1)  # noqa: E741
S7 = [start(7), streamed(7, R), streamed(7, I), STOP]
P8 = [begin_prepare(8), R, I, prepare(8)]
