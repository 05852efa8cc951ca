"""The streamed and prepared transactions that have not ended, and which messages may come next for each."""

from __future__ import annotations

from dataclasses import dataclass, field

from spark_jobs.capture.transaction_spool import TransactionSpool
from spark_jobs.logicalrep.messages import (
    BeginPrepare,
    CommitPrepared,
    Message,
    Prepare,
    RollbackPrepared,
    StreamAbort,
    StreamCommit,
    StreamPrepare,
    StreamStart,
)


class Misplaced(ValueError):  # noqa: N818  # an order of messages, not an error of ours
    """A message that is impossible in the transaction's present state."""


class NotPrepared(Misplaced):
    """A Commit Prepared of a transaction that the plugin has not sent as prepared."""


@dataclass
class Unfinished:
    """``gid`` is set once the transaction is prepared.

    ``emitted``: it has streamed messages of ``pg_logical_emit_message``. ``unattributed``: one of these may belong to
    an aborted subtransaction.
    """

    xid: int
    streamed: bool
    gid: str | None = None
    aborted: set[int] = field(default_factory=set)
    emitted: bool = False
    unattributed: bool = False


class UnfinishedTransactions:
    """The unfinished transactions by xid; their messages are in ``spool``."""

    def __init__(self, spool: TransactionSpool) -> None:
        self.spool = spool
        self._by_xid: dict[int, Unfinished] = {}

    def __getitem__(self, xid: int) -> Unfinished:
        return self._by_xid[xid]

    def happens(self, event: Message) -> Unfinished | None:
        """Apply ``event``. Returns the transaction that it starts, aborts (whole or in part) or commits; None for other
        events, and for aborts of unknown transactions. Raises Misplaced."""
        match event:
            case StreamStart(xid, first_segment):
                if first_segment == (xid in self._by_xid):
                    what = "a second first" if first_segment else "a later"
                    raise Misplaced(f"{what} stream block of transaction {xid}")
                return self._by_xid.setdefault(xid, Unfinished(xid, streamed=True))
            case StreamAbort(xid, subxid):
                return self._aborted(xid, subxid)
            case StreamPrepare(xid=xid, gid=gid):
                self._known(event, xid, streamed=True).gid = gid
            case StreamCommit(xid=xid):
                self._known(event, xid, streamed=True)
                return self._by_xid.pop(xid)
            case _:
                return self._two_phase(event)
        return None

    def _two_phase(self, event: Message) -> Unfinished | None:
        match event:
            case BeginPrepare(xid=xid, gid=gid):
                if xid in self._by_xid:
                    raise Misplaced(f"transaction {xid} begins twice")
                return self._by_xid.setdefault(xid, Unfinished(xid, streamed=False, gid=gid))
            case Prepare(xid=xid, gid=gid):
                if self._known(event, xid, streamed=False).gid != gid:
                    raise Misplaced(f"Prepare of transaction {xid} has another gid than its beginning")
            case CommitPrepared(xid=xid, gid=gid):
                if xid not in self._by_xid or self._by_xid[xid].gid != gid:
                    raise NotPrepared(f"transaction {xid} is committed here, and no message said that it was prepared")
                return self._by_xid.pop(xid)
            case RollbackPrepared(xid=xid):
                # also sent for transactions prepared before the window, which are not known here
                self._by_xid.pop(xid, None)
                self.spool.drop(xid)
        return None

    def _aborted(self, xid: int, subxid: int) -> Unfinished | None:
        """Forget the transaction, or note its aborted subtransaction. Aborts of unknown transactions do nothing."""
        if xid == subxid:
            self.spool.drop(xid)
            return self._by_xid.pop(xid, None)
        transaction = self._by_xid.get(xid)
        if transaction is not None:
            transaction.aborted.add(subxid)
        return transaction

    def _known(self, event: Message, xid: int, *, streamed: bool) -> Unfinished:
        transaction = self._by_xid.get(xid)
        if transaction is None or transaction.streamed != streamed or (streamed and transaction.gid is not None):
            raise Misplaced(f"{type(event).__name__} of transaction {xid}, of which nothing has come")
        return transaction
