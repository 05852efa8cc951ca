"""Turns streamed and prepared transactions (protocols 2 to 4) into protocol 1's form: ``B … C``, in commit order.

The messages of a transaction are spooled until its Stream Commit or Commit Prepared, and emitted there. Transactions
that do not end in the window, or that are aborted or rolled back, are not emitted. Vectorised: Python runs per block,
per transaction and per relation, never per message. ``tests/reference/assembly.py`` does the same message by message.
https://www.postgresql.org/docs/current/logicaldecoding-streaming.html
https://www.postgresql.org/docs/current/logicaldecoding-two-phase-commits.html
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_jobs.capture.masked_tables import MaskedTables
from spark_jobs.capture.message_batch import ANNOUNCEMENTS, CONTROL, ROW_CHANGES, MessageBatch
from spark_jobs.capture.pgoutput.announcements import Announcements
from spark_jobs.capture.pgoutput.blocks import XID_BYTES, Block, Blocks
from spark_jobs.capture.pgoutput.masking import Masking
from spark_jobs.capture.pgoutput.unfinished import Misplaced, NotPrepared, Unfinished, UnfinishedTransactions
from spark_jobs.capture.transaction_spool import SPOOL_SCHEMA, TransactionSpool
from spark_jobs.errors import DecodeError
from spark_jobs.logicalrep.errors import LogicalRepError
from spark_jobs.logicalrep.lsn import Lsn, Window
from spark_jobs.logicalrep.messages import (
    BeginPrepare,
    CommitPrepared,
    Message,
    RollbackPrepared,
    StreamAbort,
    StreamCommit,
    StreamStart,
)
from spark_jobs.logicalrep.pgoutput.read_message import read_message

Ints = npt.NDArray[np.int64]

_NEWEST_PROTOCOL = 4
_OUTPUT_BYTES = 4 << 20


class ReadWithoutError(DecodeError):
    """The window is ambiguous as it was read. Read without the plugin's option ``option``, it is not."""

    option: str


class UnattributedMessageError(ReadWithoutError):
    """A streamed transaction has a message of ``pg_logical_emit_message`` and a subtransaction rolled back after it.

    In a stream such a message carries the top-level xid, so nothing says whether it was rolled back.
    """

    option = "streaming"


class UnpreparedTransactionError(ReadWithoutError):
    """A COMMIT PREPARED came without its transaction.

    This happens with ``origin: none`` when the transaction was prepared in a session with a replication origin and
    committed in a session without. It also happens when the slot itself is two-phase: it has already sent the
    transaction at PREPARE.
    """

    option = "two_phase"


class Assembly:
    """Assembles the windows of one call. ``spool`` holds unfinished transactions; those left at the end are sent again
    with the call that they commit in.

    ``masked``: the tables with masked columns, if any; their values reach neither the spool nor the output.
    """

    def __init__(self, spool: TransactionSpool, masked: MaskedTables | None = None) -> None:
        self._of = ""
        self._masking = Masking(masked, lambda: self._place) if masked is not None else None
        self._open: Block | None = None
        self._transactions = UnfinishedTransactions(spool)
        self._announcements = Announcements()
        self._arrived = 0  # messages before this batch
        self._lsn = 0

    def batches(self, ordinal: int, window: Window, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Turn the next window's batches, with one binary column, ``data``, into such batches in protocol 1's form.

        Plain transactions pass through untouched. Raises DecodeError, which names window and LSN, or its subclass
        ReadWithoutError.
        """
        self._of, self._lsn = f"window {ordinal} {window}", int(window.lo)
        self._announcements.begin_window()
        for batch in batches:
            if not batch.num_rows:
                continue
            messages = MessageBatch.of(batch.column(0))
            if self._is_plain(messages):
                yield self._passed_whole(batch, messages)
            else:
                yield from _gathered(self._assembled(messages))
            self._arrived += messages.count
        if self._open is not None:
            raise self._error(f"what begins with {self._open.opener!r} has no end")

    def _is_plain(self, batch: MessageBatch) -> bool:
        """Whether the batch has plain transactions only, and no announcement needs to be repeated in it."""
        if len(batch.where(CONTROL)) or not (self._open is None or self._open.opener == "B"):
            return False
        return self._announcements.all_given_out(batch)

    def _passed_whole(self, batch: pa.RecordBatch, messages: MessageBatch) -> pa.RecordBatch:
        """A plain batch as it is, or masked."""
        if self._masking is not None:
            messages = self._masking.relations(messages)
        self._announced(messages)
        self._announcements.given_out_whole(messages)
        ends = messages.where(b"BC")
        if len(ends):
            self._open = Block("B", 0) if messages.kind[ends[-1]] == ord("B") else None
            self._follow(messages, ends)
        if self._masking is None:
            return batch
        return _batch([self._masked(messages, self._arrived + np.arange(messages.count))])

    def _assembled(self, batch: MessageBatch) -> Iterator[pa.Array]:
        events = {int(at): self._read(batch, int(at)) for at in batch.where(CONTROL)}
        xids = {at: event.xid for at, event in events.items() if isinstance(event, (StreamStart, BeginPrepare))}
        blocks = Blocks.of(batch, self._open, xids)
        if blocks.misplaced is not None:
            kind = chr(batch.kind[blocks.misplaced])
            raise self._error(f"a {kind!r} message stands in the wrong place")
        if self._masking is not None:
            batch = self._masking.relations(batch, blocks.carry_xid(np.arange(batch.count)))
            blocks = replace(blocks, batch=batch)
        self._announced(batch, blocks.carry_xid(np.arange(batch.count)))
        members = blocks.members()
        passed_on, done = blocks.passed_on, 0
        for at, event in events.items():
            if isinstance(event, (StreamCommit, CommitPrepared)):
                upto = int(np.searchsorted(passed_on, at))
                yield from self._passed_on(batch, passed_on[done:upto])
                done = upto
            yield from self._happens(event, at, blocks, members)
        yield from self._passed_on(batch, passed_on[done:])
        for xid in tuple(members):
            self._hold(xid, blocks, members)
        self._open = blocks.open_after

    def _announced(self, batch: MessageBatch, with_xid: npt.NDArray[np.bool_] | None = None) -> None:
        """Note the batch's announcements. ``with_xid``: which messages have an xid after their type."""
        for at in batch.where(ANNOUNCEMENTS).tolist():  # one per relation and window or stream, and one per DDL
            message = batch.messages[at].as_py()
            if with_xid is not None and with_xid[at]:
                message = message[:1] + message[1 + XID_BYTES :]
            self._announcements.arrive(self._arrived + at, message)

    def _happens(self, event: Message, at: int, blocks: Blocks, members: dict[int, Ints]) -> Iterator[pa.Array]:
        """Apply an event. ``members`` are the held-back messages of this batch that are not spooled yet."""
        try:
            transaction = self._transactions.happens(event)
        except NotPrepared as error:
            hint = "read the window without two_phase, from a slot that was made without it"
            raise UnpreparedTransactionError(f"{self._place}: {error}", hint=hint) from None
        except Misplaced as error:
            raise self._error(str(error)) from None
        match event:
            case StreamAbort(xid=xid, subxid=subxid) if subxid != xid and transaction is not None:
                emitted = members.get(xid, np.zeros(0, np.int64))
                emitted = emitted[(emitted < at) & (blocks.batch.kind[emitted] == ord("M"))]
                transaction.unattributed |= transaction.emitted or bool(len(emitted))
            case StreamCommit(xid=xid) | CommitPrepared(xid=xid) if transaction is not None:
                self._hold(xid, blocks, members, transaction)
                yield from self._committed(event, transaction)
            case RollbackPrepared(xid=xid) | StreamAbort(xid=xid):
                members.pop(xid, None)

    def _hold(self, xid: int, blocks: Blocks, members: dict[int, Ints], transaction: Unfinished | None = None) -> None:
        """Spool a transaction's messages of this batch, with the arrival of each."""
        at = members.pop(xid, None)
        if at is None:
            return
        transaction = transaction or self._transactions[xid]
        short = at[blocks.carry_xid(at) & (blocks.batch.length[at] < 1 + XID_BYTES)]
        if len(short):
            raise self._error(f"a {chr(blocks.batch.kind[short[0]])!r} message is too short for a stream")
        messages, xids = blocks.as_protocol_1(at)
        plain = MessageBatch.of(messages)
        if len(plain.too_short()):
            raise self._error(f"a {chr(plain.kind[plain.too_short()[0]])!r} message has the wrong length")
        transaction.emitted |= bool((transaction.streamed & (plain.kind == ord("M"))).any())
        arrivals = self._arrived + at
        columns = [self._masked(plain, arrivals), pa.array(xids), pa.array(arrivals)]
        self._transactions.spool.append(xid, pa.RecordBatch.from_arrays(columns, schema=SPOOL_SCHEMA))

    def _masked(self, batch: MessageBatch, arrivals: Ints) -> pa.Array:
        """The messages with hashes in place of masked values. Raises DecodeError for a change of a relation that was
        not announced before, masked or not."""
        changes, relids = batch.naming(ROW_CHANGES)
        versions = np.full(batch.count, -1, np.int64)
        versions[changes] = self._announcements.versions(relids, arrivals[changes])
        missing = relids[versions[changes] < 0]
        if len(missing):
            raise self._error(f"relation {missing[0]} was not announced before its change")
        return batch.messages if self._masking is None else self._masking.changes(batch.messages, versions)

    def _committed(self, end: StreamCommit | CommitPrepared, transaction: Unfinished) -> Iterator[pa.Array]:
        self._lsn = end.commit_lsn
        if transaction.unattributed:
            raise UnattributedMessageError(
                f"{self._place}: transaction {transaction.xid} has streamed messages of pg_logical_emit_message, and"
                " nothing says whether they belong to a subtransaction that was rolled back",
                hint="read the window without streaming",
            )
        shown = False
        for batch in self._transactions.spool.take(transaction.xid):
            if transaction.aborted:
                is_aborted = np.isin(batch.column("xid").to_numpy(), list(transaction.aborted))
                batch = batch.filter(pa.array(~is_aborted))
            if not batch.num_rows:
                continue
            if not shown:
                yield _one(struct.pack("!cQqI", b"B", end.commit_lsn, end.commit_ts, transaction.xid))
            shown = True
            yield from self._announcements.woven(batch.column("data"), batch.column("arrival").to_numpy())
        if shown:
            yield _one(struct.pack("!cBQQq", b"C", 0, end.commit_lsn, end.end_lsn, end.commit_ts))

    def _passed_on(self, batch: MessageBatch, at: Ints) -> Iterator[pa.Array]:
        if not len(at):
            return
        whole = int(at[-1]) - int(at[0]) + 1 == len(at)
        messages = batch.messages[int(at[0]) : int(at[-1]) + 1] if whole else batch.messages.take(pa.array(at))
        self._follow(batch, at)
        arrivals = self._arrived + at
        if self._masking is not None:
            messages = self._masked(MessageBatch.of(messages), arrivals)
        yield from self._announcements.woven(messages, arrivals)

    def _follow(self, batch: MessageBatch, at: Ints) -> None:
        begins = at[(batch.kind[at] == ord("B")) & (batch.length[at] >= 9)]
        if len(begins):
            self._lsn = int(batch.int64(begins[-1:], 1)[0]) % (1 << 64)  # a damaged LSN may read as negative

    def _read(self, batch: MessageBatch, at: int) -> Message:
        try:
            return read_message(batch.messages[at].as_py(), proto_version=_NEWEST_PROTOCOL)
        except LogicalRepError as error:
            raise self._error(f"a {chr(batch.kind[at])!r} message is not understood: {error}") from None

    @property
    def _place(self) -> str:
        return f"{self._of}, commit LSN {Lsn(self._lsn)}"

    def _error(self, what: str) -> DecodeError:
        hint = "the slot has not moved; a newer version of postgres-cdc may know more"
        return DecodeError(f"{self._place}: {what}", hint=hint)


def _one(message: bytes) -> pa.Array:
    return pa.array([message], pa.binary())


def _gathered(messages: Iterable[pa.Array]) -> Iterator[pa.RecordBatch]:
    """Batches of about ``_OUTPUT_BYTES``, because each batch has a cost for its reader."""
    waiting: list[pa.Array] = []
    size = 0
    for array in messages:
        waiting.append(array)
        size += array.nbytes
        if size >= _OUTPUT_BYTES:
            yield _batch(waiting)
            waiting, size = [], 0
    if waiting:
        yield _batch(waiting)


def _batch(messages: list[pa.Array]) -> pa.RecordBatch:
    return pa.record_batch([pa.concat_arrays(messages)], names=["data"])
