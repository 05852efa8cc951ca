"""Readers of the messages that carry data: Relation, Type, Insert, Update, Delete, Truncate, Message.

Inside a stream block these, and only these, have the xid of their subtransaction between the message type and the
fields read here.
"""

from __future__ import annotations

from collections.abc import Callable

from spark_jobs.logicalrep.cursor import Cursor
from spark_jobs.logicalrep.errors import FieldError, UnknownTupleError
from spark_jobs.logicalrep.messages import (
    DataMessage,
    Delete,
    Insert,
    LogicalMessage,
    Truncate,
    Type,
    Update,
)
from spark_jobs.logicalrep.pgoutput.tuple_data import read_tuple_data
from spark_jobs.logicalrep.relation import Relation, RelationColumn

# flag bits of logicalproto.h and proto.c
_COLUMN_IS_KEY = 1
_TRUNCATE_CASCADE = 1
_TRUNCATE_RESTART_IDENTITY = 2
_MESSAGE_TRANSACTIONAL = 1


def _relation(cursor: Cursor) -> Relation:
    return Relation(
        relid=cursor.uint32("relid"),
        nspname=cursor.cstring("nspname"),
        relname=cursor.cstring("relname"),
        relreplident=cursor.char("relreplident"),
        columns=tuple(_relation_column(cursor) for _ in range(cursor.uint16("number of columns"))),
    )


def _relation_column(cursor: Cursor) -> RelationColumn:
    flags = cursor.flags(_COLUMN_IS_KEY, "column flags")
    return RelationColumn(
        name=cursor.cstring("column name"),
        atttypid=cursor.uint32("atttypid"),
        atttypmod=cursor.int32("atttypmod"),
        key=bool(flags & _COLUMN_IS_KEY),
    )


def _type(cursor: Cursor) -> Type:
    return Type(typid=cursor.uint32("typid"), nspname=cursor.cstring("nspname"), typname=cursor.cstring("typname"))


def _insert(cursor: Cursor) -> Insert:
    relid = cursor.uint32("relid")
    _marker(cursor, "N", "Insert")
    return Insert(relid, new=read_tuple_data(cursor))


def _update(cursor: Cursor) -> Update:
    relid = cursor.uint32("relid")
    old_key = old_tuple = None
    marker = _marker(cursor, "KON", "Update")
    if marker == "K":
        old_key = read_tuple_data(cursor)
    elif marker == "O":
        old_tuple = read_tuple_data(cursor)
    if marker != "N":
        _marker(cursor, "N", "Update")
    return Update(relid, old_key, old_tuple, new=read_tuple_data(cursor))


def _delete(cursor: Cursor) -> Delete:
    relid = cursor.uint32("relid")
    if _marker(cursor, "KO", "Delete") == "K":
        return Delete(relid, old_key=read_tuple_data(cursor), old_tuple=None)
    return Delete(relid, old_key=None, old_tuple=read_tuple_data(cursor))


def _truncate(cursor: Cursor) -> Truncate:
    count = cursor.int32("number of relations")
    if count < 0:
        raise FieldError(f"number of relations: {count}")
    flags = cursor.flags(_TRUNCATE_CASCADE | _TRUNCATE_RESTART_IDENTITY, "truncate flags")
    relids = tuple(cursor.uint32("relid") for _ in range(count))
    return Truncate(relids, bool(flags & _TRUNCATE_CASCADE), bool(flags & _TRUNCATE_RESTART_IDENTITY))


def _logical_message(cursor: Cursor) -> LogicalMessage:
    return LogicalMessage(
        transactional=bool(cursor.flags(_MESSAGE_TRANSACTIONAL, "message flags")),
        lsn=cursor.lsn("message lsn"),
        prefix=cursor.cstring("message prefix"),
        content=cursor.counted("message content"),
    )


def _marker(cursor: Cursor, allowed: str, message: str) -> str:
    marker = cursor.char("tuple kind")
    if marker not in allowed:
        raise UnknownTupleError(f"tuple kind {marker!r} in {message}, expected {' or '.join(allowed)}")
    return marker


# the first byte of a message, LogicalRepMsgType of logicalproto.h
DATA_READERS: dict[str, Callable[[Cursor], DataMessage]] = {
    "R": _relation,
    "Y": _type,
    "I": _insert,
    "U": _update,
    "D": _delete,
    "T": _truncate,
    "M": _logical_message,
}
