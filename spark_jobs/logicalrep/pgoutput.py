"""pgoutput, protocol 1: one message's bytes → one frozen message. The readable specification, in wire order.

Each reader mirrors ``logicalrep_read_*`` of PostgreSQL's ``src/backend/replication/logical/proto.c`` and is stricter
than it: flag bits without a meaning are refused everywhere, and a message must be consumed exactly, because what is
not understood must stop the table, not slip by. The columnar decoder (``spark_jobs.decode.columnar``) must equal
``read_change`` on every input; it also asks ``read_change`` for the error when a message is wrong.
"""

from __future__ import annotations

from collections.abc import Callable

from spark_jobs.logicalrep.cursor import Cursor
from spark_jobs.logicalrep.errors import (
    FieldError,
    RelationMismatchError,
    UnknownColumnError,
    UnknownMessageError,
    UnknownTupleError,
)
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.logicalrep.messages import (
    UNCHANGED_TOAST,
    Begin,
    BinaryValue,
    Change,
    ColumnValue,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    Origin,
    Truncate,
    TupleData,
    Type,
    Update,
)
from spark_jobs.logicalrep.relation import Relation, RelationColumn

# option bits, logicalproto.h and proto.c
_COLUMN_IS_KEY = 1
_TRUNCATE_CASCADE = 1
_TRUNCATE_RESTART_IDENTITY = 2
_MESSAGE_TRANSACTIONAL = 1


def read_message(data: bytes) -> Message:
    """Read one whole message of protocol 1. Raises LogicalRepError (a ValueError) of the precise kind."""
    cursor = Cursor(data)
    kind = cursor.char("message type")
    reader = _READERS.get(kind)
    if reader is None:
        raise UnknownMessageError(f"message type {kind!r} is not one of protocol 1")
    message = reader(cursor)
    cursor.finish()
    return message


def read_change(data: bytes, relation: Relation) -> Change:
    """Read an Insert, Update or Delete of ``relation``.

    Raises LogicalRepError, RelationMismatchError among them when the message is of another relation, is no row
    change, or has another number of columns.
    """
    message = read_message(data)
    if not isinstance(message, (Insert, Update, Delete)):
        raise RelationMismatchError(f"{type(message).__name__} is no row change")
    if message.relid != relation.relid:
        raise RelationMismatchError(f"relation {message.relid}, expected {relation.relid}")
    for row in _tuples(message):
        if len(row) != len(relation.columns):
            raise RelationMismatchError(f"a tuple of {len(row)} columns, the relation has {len(relation.columns)}")
    return message


def _tuples(change: Change) -> list[TupleData]:
    if isinstance(change, Insert):
        return [change.new]
    found = [change.old_key, change.old_tuple]
    if isinstance(change, Update):
        found.append(change.new)
    return [row for row in found if row is not None]


def _begin(cursor: Cursor) -> Begin:
    return Begin(final_lsn=_set_lsn(cursor, "final_lsn"), commit_ts=cursor.int64("commit_ts"), xid=cursor.uint32("xid"))


def _commit(cursor: Cursor) -> Commit:
    _flags(cursor, 0, "commit flags")
    return Commit(
        commit_lsn=_set_lsn(cursor, "commit_lsn"),
        end_lsn=_set_lsn(cursor, "end_lsn"),
        commit_ts=cursor.int64("commit_ts"),
    )


def _origin(cursor: Cursor) -> Origin:
    return Origin(origin_lsn=cursor.lsn("origin_lsn"), name=cursor.cstring("origin name"))


def _relation(cursor: Cursor) -> Relation:
    return Relation(
        relid=cursor.uint32("relid"),
        nspname=cursor.cstring("nspname"),
        relname=cursor.cstring("relname"),
        relreplident=cursor.char("relreplident"),
        columns=tuple(_relation_column(cursor) for _ in range(cursor.uint16("number of columns"))),
    )


def _relation_column(cursor: Cursor) -> RelationColumn:
    flags = _flags(cursor, _COLUMN_IS_KEY, "column flags")
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
    return Insert(relid, new=_tuple_data(cursor))


def _update(cursor: Cursor) -> Update:
    relid = cursor.uint32("relid")
    old_key = old_tuple = None
    marker = _marker(cursor, "KON", "Update")
    if marker == "K":
        old_key = _tuple_data(cursor)
    elif marker == "O":
        old_tuple = _tuple_data(cursor)
    if marker != "N":
        _marker(cursor, "N", "Update")
    return Update(relid, old_key, old_tuple, new=_tuple_data(cursor))


def _delete(cursor: Cursor) -> Delete:
    relid = cursor.uint32("relid")
    if _marker(cursor, "KO", "Delete") == "K":
        return Delete(relid, old_key=_tuple_data(cursor), old_tuple=None)
    return Delete(relid, old_key=None, old_tuple=_tuple_data(cursor))


def _truncate(cursor: Cursor) -> Truncate:
    count = cursor.int32("number of relations")
    if count < 0:
        raise FieldError(f"number of relations: {count}")
    flags = _flags(cursor, _TRUNCATE_CASCADE | _TRUNCATE_RESTART_IDENTITY, "truncate flags")
    relids = tuple(cursor.uint32("relid") for _ in range(count))
    return Truncate(relids, bool(flags & _TRUNCATE_CASCADE), bool(flags & _TRUNCATE_RESTART_IDENTITY))


def _logical_message(cursor: Cursor) -> LogicalMessage:
    return LogicalMessage(
        transactional=bool(_flags(cursor, _MESSAGE_TRANSACTIONAL, "message flags")),
        lsn=cursor.lsn("message lsn"),
        prefix=cursor.cstring("message prefix"),
        content=cursor.counted("message content"),
    )


def _tuple_data(cursor: Cursor) -> TupleData:
    return tuple(_column(cursor) for _ in range(cursor.uint16("number of columns")))


def _column(cursor: Cursor) -> ColumnValue:
    kind = cursor.char("column kind")
    if kind == "t":
        return cursor.counted("column value")
    if kind == "n":
        return None
    if kind == "u":
        return UNCHANGED_TOAST
    if kind == "b":
        return BinaryValue(cursor.counted("column value"))
    raise UnknownColumnError(f"column kind {kind!r}, expected one of n, u, t, b")


def _marker(cursor: Cursor, allowed: str, message: str) -> str:
    marker = cursor.char("tuple kind")
    if marker not in allowed:
        raise UnknownTupleError(f"tuple kind {marker!r} in {message}, expected {' or '.join(allowed)}")
    return marker


def _flags(cursor: Cursor, known: int, field: str) -> int:
    flags = cursor.uint8(field)
    if flags & ~known:
        raise FieldError(f"{field}: unknown bits in 0x{flags:02X}")
    return flags


def _set_lsn(cursor: Cursor, field: str) -> Lsn:
    lsn = cursor.lsn(field)
    if lsn == 0:
        raise FieldError(f"{field} is not set")
    return lsn


# the first byte of a message, LogicalRepMsgType of logicalproto.h
_READERS: dict[str, Callable[[Cursor], Message]] = {
    "B": _begin,
    "C": _commit,
    "O": _origin,
    "R": _relation,
    "Y": _type,
    "I": _insert,
    "U": _update,
    "D": _delete,
    "T": _truncate,
    "M": _logical_message,
}
