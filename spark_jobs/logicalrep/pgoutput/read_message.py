"""Reads one message of pgoutput, protocols 1 to 4. The readable specification.

Each reader mirrors ``logicalrep_read_*`` of PostgreSQL's ``src/backend/replication/logical/proto.c`` but is stricter:
undefined flag bits are refused, and a message must be consumed exactly, because what is not understood must stop the
table instead of going unnoticed. The columnar decoder (``spark_jobs.decode.columnar``) must equal ``read_change`` on
every input, and calls it for the error when a message is damaged.

https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
"""

from __future__ import annotations

from collections.abc import Mapping

from spark_jobs.logicalrep.cursor import Cursor
from spark_jobs.logicalrep.errors import RelationMismatchError, UnknownMessageError
from spark_jobs.logicalrep.messages import Change, Delete, Insert, Message, Streamed, TupleData, Update
from spark_jobs.logicalrep.pgoutput.data_messages import DATA_READERS
from spark_jobs.logicalrep.pgoutput.transaction_messages import TRANSACTION_READERS, Reader
from spark_jobs.logicalrep.relation import Relation

PROTOCOLS = (1, 2, 3, 4)


def read_message(data: bytes, *, proto_version: int = 1) -> Message:
    """Read one whole message from outside stream blocks. Messages in the change log are of protocol 1.

    Raises the LogicalRepError (a ValueError) that fits; UnknownMessageError when ``proto_version`` has no such message.
    """
    cursor = Cursor(data)
    reader = _reader(cursor.char("message type"), proto_version)
    message = reader(cursor)
    cursor.finish()
    return message


def read_streamed_message(data: bytes, *, proto_version: int = 2) -> Streamed | Message:
    """Read one whole message from between Stream Start and Stream Stop.

    A data message is returned as Streamed, with its subtransaction's xid. Any other is read as outside a block: Origin
    and Stream Stop have no xid there, and the assembly refuses the rest.
    """
    cursor = Cursor(data)
    kind = cursor.char("message type")
    if kind not in DATA_READERS:
        return read_message(data, proto_version=proto_version)
    streamed = Streamed(cursor.xid("xid of the subtransaction"), DATA_READERS[kind](cursor))
    cursor.finish()
    return streamed


def read_change(data: bytes, relation: Relation) -> Change:
    """Read an Insert, Update or Delete of ``relation``.

    Raises LogicalRepError; RelationMismatchError when the message is of another relation, is no row change, or has
    another number of columns.
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
    rows = [change.old_key, change.old_tuple]
    if isinstance(change, Update):
        rows.append(change.new)
    return [row for row in rows if row is not None]


def _reader(kind: str, proto_version: int) -> Reader:
    readers = _READERS.get(proto_version)
    if readers is None:
        raise ValueError(f"proto_version is 1 to {PROTOCOLS[-1]}, got {proto_version}")
    if kind in readers:
        return readers[kind]
    since = [protocol for protocol in PROTOCOLS if kind in _READERS[protocol]]
    known = f", but of protocol {since[0]}" if since else ""
    raise UnknownMessageError(f"message type {kind!r} is not one of protocol {proto_version}{known}")


def _readers_of(proto_version: int) -> Mapping[str, Reader]:
    readers: dict[str, Reader] = dict(DATA_READERS)
    for protocol in range(1, proto_version + 1):
        readers.update(TRANSACTION_READERS[protocol])
    return readers


_READERS = {protocol: _readers_of(protocol) for protocol in PROTOCOLS}
