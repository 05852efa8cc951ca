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
