"""Assembles messages of any protocol into whole committed transactions, in commit order and in memory.

This is the readable specification, for tests and fuzzers: ``spark_jobs.capture.pgoutput.assembly`` does the
same with columns, spools what is large, and must equal it. Both produce protocol 1's form: a window's transactions are
the same whatever ``proto_version``, ``streaming`` and ``two_phase`` it was read with.
https://www.postgresql.org/docs/current/protocol-logical-replication.html

Concatenating blocks is not enough:

- **An announcement (Type messages, then a Relation message) outlives the transaction that it stands in.** Whether the
  server counts it as sent for a later change depends on that transaction, and on the version: what a stream announced
  counts for the stream (``maybe_send_schema``), for the connection once the stream commits and, since 19, once it is
  prepared; what a prepared or aborted (sub)transaction announced counts even if it is rolled back. Yet before the
  server announces other columns of a relation it forgets all announcements of that relation (``get_rel_sync_entry``).
  Therefore one rule holds for all: in force for a change is the relation's last announcement that *arrived* before it,
  in whatever transaction. The announcement is repeated before each change that needs a different one from the last one
  emitted.
- **A Message (M) in a stream has the xid of the top-level transaction**, whichever subtransaction emitted it
  (``pgoutput_message``), and an A does not take it back. If a subtransaction is aborted after such a Message, nothing
  says whether the Message counts: AmbiguousMessageError, and the window has to be read without streaming.
- **The Origin of a streamed transaction is lost or has no LSN.** The server learns it from the commit record, and
  pgoutput names it only in the first block, with LSN 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NoReturn

from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.logicalrep.messages import (
    Begin,
    BeginPrepare,
    Commit,
    CommitPrepared,
    DataMessage,
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
)
from spark_jobs.logicalrep.pgoutput.read_message import read_message, read_streamed_message
from tests.reference.errors import (
    AmbiguousMessageError,
    MessageOrderError,
    MissingTransactionError,
)
from tests.reference.pending_transaction import Announcement, PendingChange, PendingTransaction
from tests.reference.transaction import LooseMessage, PlacedMessage, ReadOptions, Transaction
from tests.wire import without_stream_xid


@dataclass(slots=True)
class _Assembly:
    options: ReadOptions
    announced: dict[int, Announcement] = field(default_factory=dict)  # the last to arrive
    given_out: dict[int, Announcement] = field(default_factory=dict)
    opened: tuple[Begin | BeginPrepare, PendingTransaction] | None = None
    block: PendingTransaction | None = None
    streams: dict[int, PendingTransaction] = field(default_factory=dict)
    prepared: dict[str, PendingTransaction] = field(default_factory=dict)
    last_commit: int = 0

    def take(self, data: bytes) -> Transaction | LooseMessage | None:
        protocol = self.options.proto_version
        if self.block is not None:
            self._in_block(self.block, data, read_streamed_message(data, proto_version=protocol))
            return None
        message = read_message(data, proto_version=protocol)
        if self.opened is not None:
            return self._in_transaction(*self.opened, data, message)
        return self._between(data, message)

    def finish(self) -> None:
        """Streams and prepared transactions without an end are dropped: a later window will have them whole. Raises
        MessageOrderError inside a transaction or stream block."""
        if self.opened is not None:
            raise MessageOrderError(f"transaction {self.opened[1].xid} has no end")
        if self.block is not None:
            raise MessageOrderError(f"a stream block of transaction {self.block.xid} has no end")

    def _in_block(self, stream: PendingTransaction, data: bytes, message: Streamed | Message) -> None:
        if isinstance(message, Streamed):
            stream.add(message.xid, without_stream_xid(data), message.message)
        elif isinstance(message, Origin):
            stream.origin = message
        elif isinstance(message, StreamStop):
            stream.types.clear()
            self.block = None
        else:
            _out_of_place(message, f"inside a stream block of transaction {stream.xid}")

    def _in_transaction(
        self, begin: Begin | BeginPrepare, pending: PendingTransaction, data: bytes, message: Message
    ) -> Transaction | None:
        match begin, message:
            case _, Origin():
                pending.origin = message
            case Begin(), Commit():
                if message.commit_lsn != begin.final_lsn:
                    raise MessageOrderError(f"Begin says {begin.final_lsn}, Commit {message.commit_lsn}")
                self.opened = None
                return self._committed(pending, message)
            case BeginPrepare(), Prepare():
                if (message.xid, message.gid) != (begin.xid, begin.gid):
                    raise MessageOrderError(f"Prepare of transaction {message.xid} ends transaction {begin.xid}")
                self.opened = None
                self._keep_prepared(pending, message)
            case _ if isinstance(message, DataMessage):
                pending.add(pending.xid, data, message)
            case _:
                _out_of_place(message, f"inside transaction {pending.xid}")
        return None

    def _between(self, data: bytes, message: Message) -> Transaction | LooseMessage | None:
        match message:
            case Begin(xid=xid):
                self.opened = message, PendingTransaction(xid, self.announced)
            case LogicalMessage(transactional=False):
                return LooseMessage(data, message)
            case StreamStart() | StreamAbort() | StreamCommit() | StreamPrepare():
                return self._stream(message)
            case BeginPrepare() | CommitPrepared() | RollbackPrepared():
                return self._two_phase(message)
            case _:
                _out_of_place(message, "outside any transaction")
        return None

    def _stream(self, message: StreamStart | StreamAbort | StreamCommit | StreamPrepare) -> Transaction | None:
        if self.options.streaming == "off":
            _out_of_place(message, "although streaming is off")
        known = self.streams.get(message.xid)
        match message:
            case StreamStart(xid, first_segment):
                if first_segment == (known is not None):
                    what = "a second first" if first_segment else "a later"
                    raise MessageOrderError(f"{what} stream block of transaction {xid}")
                self.block = self.streams.setdefault(xid, PendingTransaction(xid, self.announced))
            case StreamAbort(xid, subxid):
                if subxid == xid:
                    self.streams.pop(xid, None)
                elif known is not None:
                    known.abort(subxid)
            case StreamCommit(xid):
                return self._committed(self._ended(message), message)
            case StreamPrepare():
                self._keep_prepared(self._ended(message), message)
        return None

    def _ended(self, message: StreamCommit | StreamPrepare) -> PendingTransaction:
        if message.xid not in self.streams:
            raise MissingTransactionError(f"{type(message).__name__} of transaction {message.xid}, which has no blocks")
        return self.streams.pop(message.xid)

    def _two_phase(self, message: BeginPrepare | CommitPrepared | RollbackPrepared) -> Transaction | None:
        if not self.options.two_phase:
            _out_of_place(message, "although two_phase is off")
        match message:
            case BeginPrepare(xid=xid):
                self.opened = message, PendingTransaction(xid, self.announced)
            case CommitPrepared(xid=xid, gid=gid):
                pending = self.prepared.pop(gid, None)
                if pending is None or pending.xid != xid:
                    raise MissingTransactionError(
                        f"transaction {xid} was prepared before the window that commits it at {message.commit_lsn}"
                    )
                return self._committed(pending, message)
            case RollbackPrepared(gid=gid):
                self.prepared.pop(gid, None)  # unknown if it was prepared before the window
        return None

    def _keep_prepared(self, pending: PendingTransaction, message: Prepare | StreamPrepare) -> None:
        if message.gid in self.prepared:
            raise MessageOrderError(f"transactions {self.prepared[message.gid].xid} and {pending.xid} have one gid")
        pending.gid = message.gid
        pending.types.clear()
        self.prepared[message.gid] = pending

    def _committed(
        self, pending: PendingTransaction, end: Commit | StreamCommit | CommitPrepared
    ) -> Transaction | None:
        """The transaction; None if it has no changes left. PostgreSQL 14 sends Begin and Commit of empty ones too."""
        if end.commit_lsn <= self.last_commit:
            raise MessageOrderError(f"a commit at {end.commit_lsn} comes after one at {Lsn(self.last_commit)}")
        if pending.ambiguous is not None:
            raise AmbiguousMessageError(
                f"commit LSN {end.commit_lsn}: a streamed Message of transaction {pending.xid} may be of its aborted"
                f" subtransaction {pending.ambiguous}, the protocol does not say; read the window without streaming"
            )
        self.last_commit = end.commit_lsn
        if not pending.changes:
            return None
        origin = pending.origin
        return Transaction(
            end.commit_lsn,
            end.end_lsn,
            end.commit_ts,
            pending.xid,
            origin.name if origin else None,
            origin.origin_lsn if origin else None,
            pending.gid,
            tuple(self._placed(pending.changes)),
        )

    def _placed(self, changes: Iterable[PendingChange]) -> Iterator[PlacedMessage]:
        for ordinal, change in enumerate(changes):
            for relid, announcement in change.announced:
                if self.given_out.get(relid) != announcement:
                    self.given_out[relid] = announcement
                    for data, message in announcement.messages():
                        yield PlacedMessage(ordinal, data, message)
            yield PlacedMessage(ordinal, change.data, change.message)


def assemble(messages: Iterable[bytes], options: ReadOptions) -> Iterator[Transaction | LooseMessage]:
    """Assemble one window's messages, given in the order in which the server sent them.

    Yields transactions in commit order, with loose messages where they were emitted. Drops aborted subtransactions, and
    streams and prepared transactions without an end. Raises LogicalRepError; AssemblyError for messages out of order.
    """
    assembly = _Assembly(options)
    for data in messages:
        transaction = assembly.take(data)
        if transaction is not None:
            yield transaction
    assembly.finish()


def _out_of_place(message: Message, where: str) -> NoReturn:
    raise MessageOrderError(f"{type(message).__name__} {where}")
