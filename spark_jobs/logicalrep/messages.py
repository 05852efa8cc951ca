"""The messages of pgoutput, protocol 1, as frozen values; field names are those of the manual and of ``proto.c``.

https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from enum import Enum
from typing import Literal

from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.logicalrep.relation import Relation

_POSTGRES_EPOCH = datetime(2000, 1, 1, tzinfo=timezone.utc)


class Unchanged(Enum):
    """The state of a column whose TOASTed value an UPDATE left alone: not sent, and not a null."""

    TOAST = "u"


UNCHANGED_TOAST: Literal[Unchanged.TOAST] = Unchanged.TOAST


@dataclass(frozen=True, slots=True)
class BinaryValue:
    """A column in its type's binary representation (option ``binary``)."""

    data: bytes


# None: null (n).  UNCHANGED_TOAST (u).  bytes: the type's text output (t).  BinaryValue (b).
ColumnValue = bytes | BinaryValue | Literal[Unchanged.TOAST] | None
TupleData = tuple[ColumnValue, ...]


def commit_time(microseconds: int) -> datetime:
    """A wire timestamp, microseconds since 2000-01-01 UTC. Raises OverflowError beyond the year 9999."""
    return _POSTGRES_EPOCH + timedelta(microseconds=microseconds)


@dataclass(frozen=True, slots=True)
class Begin:
    """``B``. ``final_lsn`` is where the transaction's commit record starts; ``commit_ts`` in wire microseconds."""

    final_lsn: Lsn
    commit_ts: int
    xid: int


@dataclass(frozen=True, slots=True)
class Commit:
    """``C``. ``commit_lsn`` equals Begin's ``final_lsn``; ``end_lsn`` is where the commit record ends."""

    commit_lsn: Lsn
    end_lsn: Lsn
    commit_ts: int


@dataclass(frozen=True, slots=True)
class Origin:
    """``O``. The transaction came from the replication origin ``name``, where it was committed at ``origin_lsn``."""

    origin_lsn: Lsn
    name: str


@dataclass(frozen=True, slots=True)
class Type:
    """``Y``. The name of a type that is not built in, sent before the Relation message that uses it."""

    typid: int
    nspname: str
    typname: str


@dataclass(frozen=True, slots=True)
class Insert:
    """``I``."""

    relid: int
    new: TupleData


@dataclass(frozen=True, slots=True)
class Update:
    """``U``. At most one of ``old_key`` (K) and ``old_tuple`` (O, under REPLICA IDENTITY FULL) is set.

    ``old_key`` is as wide as the relation, with None outside the key: those are not nulls. It is sent when the key
    changed, and also when a key column lies out of line in TOAST, where the new tuple then says UNCHANGED_TOAST.
    """

    relid: int
    old_key: TupleData | None
    old_tuple: TupleData | None
    new: TupleData


@dataclass(frozen=True, slots=True)
class Delete:
    """``D``. Exactly one of ``old_key`` and ``old_tuple`` is set."""

    relid: int
    old_key: TupleData | None
    old_tuple: TupleData | None


@dataclass(frozen=True, slots=True)
class Truncate:
    """``T``. One message for all tables of one TRUNCATE, those reached by CASCADE included."""

    relids: tuple[int, ...]
    cascade: bool
    restart_identity: bool


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    """``M``: ``pg_logical_emit_message``. A non-transactional one stands outside any transaction."""

    transactional: bool
    lsn: Lsn
    prefix: str
    content: bytes


Change = Insert | Update | Delete
Message = Begin | Commit | Origin | Relation | Type | Insert | Update | Delete | Truncate | LogicalMessage
