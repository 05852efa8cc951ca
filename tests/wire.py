"""Messages → wire bytes: the writers that ``proto.c`` has beside its readers. Only tests write messages."""

from __future__ import annotations

import struct

from spark_jobs.logicalrep.messages import (
    UNCHANGED_TOAST,
    Begin,
    BeginPrepare,
    BinaryValue,
    ColumnValue,
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
from spark_jobs.logicalrep.relation import Relation


def without_stream_xid(data: bytes) -> bytes:
    """The bytes of a streamed data message in protocol 1's form: without the xid after the message type."""
    return data[:1] + data[5:]


def write_message(message: Message | Streamed) -> bytes:
    match message:
        case Streamed(xid, data):
            wire = write_message(data)
            return wire[:1] + struct.pack(">I", xid) + wire[1:]
        case Relation():
            return _relation(message)
        case Type(typid, nspname, typname):
            return b"Y" + struct.pack(">I", typid) + _cstring(nspname) + _cstring(typname)
        case Insert(relid, new):
            return b"I" + struct.pack(">I", relid) + b"N" + tuple_data(new)
        case Update(relid, old_key, old_tuple, new):
            return b"U" + struct.pack(">I", relid) + _old(old_key, old_tuple) + b"N" + tuple_data(new)
        case Delete(relid, old_key, old_tuple):
            return b"D" + struct.pack(">I", relid) + _old(old_key, old_tuple)
        case Truncate(relids, cascade, restart_identity):
            flags = cascade | restart_identity << 1
            return b"T" + struct.pack(f">iB{len(relids)}I", len(relids), flags, *relids)
        case LogicalMessage(transactional, lsn, prefix, content):
            head = b"M" + struct.pack(">BQ", transactional, lsn) + _cstring(prefix)
            return head + struct.pack(">i", len(content)) + content
        case _:
            return _transaction_message(message)


def _transaction_message(message: Message) -> bytes:
    match message:
        case Begin(final_lsn, commit_ts, xid):
            return b"B" + struct.pack(">QqI", final_lsn, commit_ts, xid)
        case Commit(commit_lsn, end_lsn, commit_ts):
            return b"C" + struct.pack(">BQQq", 0, commit_lsn, end_lsn, commit_ts)
        case Origin(origin_lsn, name):
            return b"O" + struct.pack(">Q", origin_lsn) + _cstring(name)
        case StreamStart(xid, first_segment):
            return b"S" + struct.pack(">IB", xid, first_segment)
        case StreamStop():
            return b"E"
        case StreamCommit(xid, commit_lsn, end_lsn, commit_ts):
            return b"c" + struct.pack(">IBQQq", xid, 0, commit_lsn, end_lsn, commit_ts)
        case StreamAbort(xid, subxid, abort_lsn, abort_ts):
            tail = b"" if abort_lsn is None else struct.pack(">Qq", abort_lsn, abort_ts)
            return b"A" + struct.pack(">II", xid, subxid) + tail
        case _:
            return _two_phase_message(message)


def _two_phase_message(message: Message) -> bytes:
    match message:
        case BeginPrepare(lsn, end_lsn, time, xid, gid):
            return b"b" + struct.pack(">QQqI", lsn, end_lsn, time, xid) + _cstring(gid)
        case Prepare(lsn, end_lsn, time, xid, gid):
            return b"P" + struct.pack(">BQQqI", 0, lsn, end_lsn, time, xid) + _cstring(gid)
        case CommitPrepared(lsn, end_lsn, time, xid, gid):
            return b"K" + struct.pack(">BQQqI", 0, lsn, end_lsn, time, xid) + _cstring(gid)
        case StreamPrepare(lsn, end_lsn, time, xid, gid):
            return b"p" + struct.pack(">BQQqI", 0, lsn, end_lsn, time, xid) + _cstring(gid)
        case RollbackPrepared(prepare_end, rollback_end, prepare_ts, rollback_ts, xid, gid):
            times = struct.pack(">BQQqqI", 0, prepare_end, rollback_end, prepare_ts, rollback_ts, xid)
            return b"r" + times + _cstring(gid)
    raise AssertionError(f"no writer for {message}")


def tuple_data(row: TupleData) -> bytes:
    return struct.pack(">H", len(row)) + b"".join(map(_column, row))


def _column(value: ColumnValue) -> bytes:
    if value is None:
        return b"n"
    if value is UNCHANGED_TOAST:
        return b"u"
    kind, data = (b"b", value.data) if isinstance(value, BinaryValue) else (b"t", value)
    return kind + struct.pack(">i", len(data)) + data


def _old(old_key: TupleData | None, old_tuple: TupleData | None) -> bytes:
    if old_key is not None:
        return b"K" + tuple_data(old_key)
    return b"O" + tuple_data(old_tuple) if old_tuple is not None else b""


def _relation(relation: Relation) -> bytes:
    head = b"R" + struct.pack(">I", relation.relid) + _cstring(relation.nspname) + _cstring(relation.relname)
    head += relation.relreplident.encode("latin-1") + struct.pack(">H", len(relation.columns))
    for column in relation.columns:
        head += struct.pack(">B", column.key) + _cstring(column.name)
        head += struct.pack(">Ii", column.atttypid, column.atttypmod)
    return head


def _cstring(text: str) -> bytes:
    return text.encode() + b"\0"
