"""Readers of the messages that begin and end transactions and stream blocks, by the protocol that introduced them."""

from __future__ import annotations

from collections.abc import Callable

from spark_jobs.logicalrep.cursor import Cursor
from spark_jobs.logicalrep.errors import FieldError
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.logicalrep.messages import (
    Begin,
    BeginPrepare,
    Commit,
    CommitPrepared,
    Message,
    Origin,
    Prepare,
    RollbackPrepared,
    StreamAbort,
    StreamCommit,
    StreamPrepare,
    StreamStart,
    StreamStop,
)

_NO_FLAGS = 0


def _begin(cursor: Cursor) -> Begin:
    return Begin(final_lsn=cursor.set_lsn("final_lsn"), commit_ts=cursor.int64("commit_ts"), xid=cursor.uint32("xid"))


def _commit(cursor: Cursor) -> Commit:
    cursor.flags(_NO_FLAGS, "commit flags")
    return Commit(
        commit_lsn=cursor.set_lsn("commit_lsn"),
        end_lsn=cursor.set_lsn("end_lsn"),
        commit_ts=cursor.int64("commit_ts"),
    )


def _origin(cursor: Cursor) -> Origin:
    return Origin(origin_lsn=cursor.lsn("origin_lsn"), name=cursor.cstring("origin name"))


def _stream_start(cursor: Cursor) -> StreamStart:
    xid = cursor.xid()
    first_segment = cursor.uint8("first segment")
    if first_segment > 1:
        raise FieldError(f"first segment: {first_segment}, expected 0 or 1")
    return StreamStart(xid, bool(first_segment))


def _stream_stop(_: Cursor) -> StreamStop:
    return StreamStop()


def _stream_commit(cursor: Cursor) -> StreamCommit:
    xid = cursor.xid()
    cursor.flags(_NO_FLAGS, "stream commit flags")
    return StreamCommit(
        xid,
        commit_lsn=cursor.set_lsn("commit_lsn"),
        end_lsn=cursor.set_lsn("end_lsn"),
        commit_ts=cursor.int64("commit_ts"),
    )


def _stream_abort(cursor: Cursor) -> StreamAbort:
    return StreamAbort(xid=cursor.xid(), subxid=cursor.xid("subxid"))


def _stream_abort_4(cursor: Cursor) -> StreamAbort:
    """Protocol 4 adds LSN and time, but only with ``streaming 'parallel'``: the length shows whether they are there."""
    aborted = _stream_abort(cursor)
    if not cursor.left:
        return aborted
    return StreamAbort(
        aborted.xid, aborted.subxid, abort_lsn=cursor.lsn("abort_lsn"), abort_ts=cursor.int64("abort_ts")
    )


def _begin_prepare(cursor: Cursor) -> BeginPrepare:
    return BeginPrepare(*_prepared_at(cursor, "prepare"))


def _prepare(cursor: Cursor) -> Prepare:
    cursor.flags(_NO_FLAGS, "prepare flags")
    return Prepare(*_prepared_at(cursor, "prepare"))


def _commit_prepared(cursor: Cursor) -> CommitPrepared:
    cursor.flags(_NO_FLAGS, "commit prepared flags")
    return CommitPrepared(*_prepared_at(cursor, "commit"))


def _stream_prepare(cursor: Cursor) -> StreamPrepare:
    cursor.flags(_NO_FLAGS, "stream prepare flags")
    return StreamPrepare(*_prepared_at(cursor, "prepare"))


def _rollback_prepared(cursor: Cursor) -> RollbackPrepared:
    cursor.flags(_NO_FLAGS, "rollback prepared flags")
    return RollbackPrepared(
        prepare_end_lsn=cursor.set_lsn("prepare_end_lsn"),
        rollback_end_lsn=cursor.set_lsn("rollback_end_lsn"),
        prepare_ts=cursor.int64("prepare_ts"),
        rollback_ts=cursor.int64("rollback_ts"),
        xid=cursor.xid(),
        gid=cursor.cstring("gid"),
    )


def _prepared_at(cursor: Cursor, event: str) -> tuple[Lsn, Lsn, int, int, str]:
    """The five fields shared by all messages about a prepared transaction except RollbackPrepared."""
    return (
        cursor.set_lsn(f"{event}_lsn"),
        cursor.set_lsn("end_lsn"),
        cursor.int64(f"{event}_ts"),
        cursor.xid(),
        cursor.cstring("gid"),
    )


Reader = Callable[[Cursor], Message]

# by protocol, the readers that it adds; the key is a message's first byte (LogicalRepMsgType of logicalproto.h)
TRANSACTION_READERS: dict[int, dict[str, Reader]] = {
    1: {"B": _begin, "C": _commit, "O": _origin},
    2: {"S": _stream_start, "E": _stream_stop, "c": _stream_commit, "A": _stream_abort},
    3: {
        "b": _begin_prepare,
        "P": _prepare,
        "K": _commit_prepared,
        "r": _rollback_prepared,
        "p": _stream_prepare,
    },
    4: {"A": _stream_abort_4},
}
