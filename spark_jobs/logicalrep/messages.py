"""The messages of pgoutput, protocols 1 to 4, as frozen values, with the field names of the manual and ``proto.c``.

Times are wire microseconds (see ``commit_time``). An ``xid`` is the top-level transaction's unless noted otherwise.

https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Literal

from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.logicalrep.relation import Relation

_POSTGRES_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


class Unchanged(Enum):
    """The state of a column whose TOASTed value an UPDATE did not change: it is not sent, and it is not null."""

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
    """The time of a wire timestamp: microseconds since 2000-01-01 UTC. Raises OverflowError beyond the year 9999."""
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

    Under ``publish_via_partition_root`` the letter follows the root's replica identity, but the partition's own says
    what the tuple holds: O may be a key alone, and K a whole row.

    ``old_key`` is as wide as the relation; None outside the key does not mean null. It is sent when the key changed,
    and also when a key column is stored out of line in TOAST; the new tuple then has UNCHANGED_TOAST for it.
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
    """``T``. One message for all tables of one TRUNCATE, including those reached by CASCADE."""

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


@dataclass(frozen=True, slots=True)
class StreamStart:
    """``S``, protocol 2. Begins a block of the still open transaction ``xid``; the block ends at ``E``."""

    xid: int
    first_segment: bool


@dataclass(frozen=True, slots=True)
class StreamStop:
    """``E``, protocol 2. Ends the block; other transactions may come before the next block."""


@dataclass(frozen=True, slots=True)
class StreamCommit:
    """``c``, protocol 2. The streamed transaction ``xid`` is committed."""

    xid: int
    commit_lsn: Lsn
    end_lsn: Lsn
    commit_ts: int


@dataclass(frozen=True, slots=True)
class StreamAbort:
    """``A``, protocol 2. The subtransaction ``subxid`` of ``xid`` is aborted; the whole transaction if both are equal.

    ``abort_lsn`` and ``abort_ts`` are sent only with protocol 4 and ``streaming 'parallel'``.
    """

    xid: int
    subxid: int
    abort_lsn: Lsn | None = None
    abort_ts: int | None = None


@dataclass(frozen=True, slots=True)
class BeginPrepare:
    """``b``, protocol 3. Opens a transaction that ``Prepare`` closes; nothing is committed yet."""

    prepare_lsn: Lsn
    end_lsn: Lsn
    prepare_ts: int
    xid: int
    gid: str


@dataclass(frozen=True, slots=True)
class Prepare:
    """``P``, protocol 3. PREPARE TRANSACTION; ``end_lsn`` is where its record ends."""

    prepare_lsn: Lsn
    end_lsn: Lsn
    prepare_ts: int
    xid: int
    gid: str


@dataclass(frozen=True, slots=True)
class CommitPrepared:
    """``K``, protocol 3. COMMIT PREPARED; at ``commit_lsn``, protocol 1 would send the whole transaction."""

    commit_lsn: Lsn
    end_lsn: Lsn
    commit_ts: int
    xid: int
    gid: str


@dataclass(frozen=True, slots=True)
class RollbackPrepared:
    """``r``, protocol 3. ROLLBACK PREPARED; also sent when the transaction was prepared before the window."""

    prepare_end_lsn: Lsn
    rollback_end_lsn: Lsn
    prepare_ts: int
    rollback_ts: int
    xid: int
    gid: str


@dataclass(frozen=True, slots=True)
class StreamPrepare:
    """``p``, protocol 3. PREPARE TRANSACTION of a streamed transaction."""

    prepare_lsn: Lsn
    end_lsn: Lsn
    prepare_ts: int
    xid: int
    gid: str


Change = Insert | Update | Delete
# inside a stream block, these carry the xid of their subtransaction right after the message type
DataMessage = Change | Truncate | LogicalMessage | Relation | Type


@dataclass(frozen=True, slots=True)
class Streamed:
    """A data message inside a stream block. ``xid`` is the subtransaction's, or the transaction's own.

    A LogicalMessage carries the top-level xid even when a subtransaction emitted it (``pgoutput_message``).
    """

    xid: int
    message: DataMessage


Message = (
    Begin
    | Commit
    | Origin
    | DataMessage
    | StreamStart
    | StreamStop
    | StreamCommit
    | StreamAbort
    | BeginPrepare
    | Prepare
    | CommitPrepared
    | RollbackPrepared
    | StreamPrepare
)
