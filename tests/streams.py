"""Histories of transactions, and what pgoutput sends of one history under any options: a simulated server.

``histories()`` is a Hypothesis strategy: interleaved transactions with savepoints, rollbacks to them, prepared and
unfinished ones. ``messages(history, server, options)`` gives the bytes that a slot read with those options would give,
so that two readings of one history can be compared::

    @given(histories(), SERVERS, READ_OPTIONS)
    def test_…(history: History, server: Server, options: ReadOptions) -> None:
        assert rows(messages(history, server, options), options) == rows(messages(history, server), PROTOCOL_1)

Compare without the gid: protocol 1 knows none.

More cruel than a server: a relation's columns change while transactions are open (as a publication's column list can),
and announcements are repeated for no reason. Kinder in one thing: an Origin in a stream has its LSN, and is there.
What holds on each version: before it announces other columns of a relation, a server forgets all announcements of it
(``get_rel_sync_entry`` in pgoutput.c, which builds the relation's entry anew after an invalidation).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from hypothesis import strategies as st

from spark_jobs.logicalrep.lsn import Lsn, Window
from spark_jobs.logicalrep.messages import (
    Begin,
    BeginPrepare,
    Commit,
    CommitPrepared,
    DataMessage,
    LogicalMessage,
    Message,
    Prepare,
    RollbackPrepared,
    StreamAbort,
    StreamCommit,
    Streamed,
    StreamPrepare,
    StreamStart,
    StreamStop,
)
from tests.reference.transaction import ReadOptions
from tests.stream_histories import (
    Aborted,
    Committed,
    Emitted,
    Event,
    History,
    Invalidated,
    MemoryFull,
    Prepared,
    RolledBackTo,
    Shape,
    Wrote,
    histories,
)
from tests.wire import write_message

__all__ = [
    "NEWEST_SERVER",
    "PROTOCOL_1",
    "READ_OPTIONS",
    "SERVERS",
    "History",
    "Server",
    "histories",
    "messages",
    "window",
]


@dataclass(frozen=True)
class Server:
    """What depends on the version: ``skips_empty``: it leaves out transactions without a change, since 15.
    ``keeps_prepared``: what a stream announced counts for the connection from its Stream Prepare on, since 19."""

    skips_empty: bool
    keeps_prepared: bool


NEWEST_SERVER = Server(skips_empty=True, keeps_prepared=True)
SERVERS = st.sampled_from([Server(False, False), Server(True, False), NEWEST_SERVER])

PROTOCOL_1 = ReadOptions()
READ_OPTIONS = st.sampled_from(
    [
        ReadOptions(protocol, streaming, two_phase)  # type: ignore[arg-type]
        for protocol, streaming, two_phase in [
            (1, "off", False),
            (2, "on", False),
            (3, "off", True),
            (3, "on", True),
            (4, "parallel", False),
            (4, "parallel", True),
        ]
    ]
)

_FIRST_LSN, _LSN_STEP = 0x1000, 0x40


def messages(history: History, server: Server, options: ReadOptions = PROTOCOL_1) -> list[bytes]:
    """What the server sends."""
    return [write_message(message) for message in _Decoding(history, server, options).sent()]


def window(history: History) -> Window:
    """The window in which all of it lies."""
    return Window(Lsn(_FIRST_LSN), Lsn(_FIRST_LSN + _LSN_STEP * len(history.events)))


@dataclass
class _Buffer:
    """The server's reorder buffer for one top-level transaction."""

    xid: int
    waiting: list[Wrote] = field(default_factory=list)
    announced: dict[int, Shape] = field(default_factory=dict)
    streamed: bool = False
    prepared: bool = False  # and sent


class _Decoding:
    def __init__(self, history: History, server: Server, options: ReadOptions) -> None:
        self._events = history.events
        self._origins = dict(history.origins)
        self._server, self._options = server, options
        self._announced: dict[int, Shape] = {}  # for the connection
        self._newest: dict[int, Shape] = {}  # announced for the connection or in a stream
        self._buffers: dict[int, _Buffer] = {}

    def sent(self) -> Iterator[Message | Streamed]:
        for index, event in enumerate(self._events):
            lsn = Lsn(_FIRST_LSN + _LSN_STEP * index)
            if isinstance(event, Emitted):
                yield replace(event.message, lsn=lsn)
            elif isinstance(event, Invalidated):
                self._forget(event.relid)
            else:
                yield from self._of_transaction(self._buffers.setdefault(event.xid, _Buffer(event.xid)), event, lsn)

    def _forget(self, relid: int) -> None:
        for announced in [self._announced, *(buffer.announced for buffer in self._buffers.values())]:
            announced.pop(relid, None)

    def _of_transaction(self, buffer: _Buffer, event: Event, lsn: Lsn) -> Iterator[Message | Streamed]:
        match event:
            case Wrote(message=LogicalMessage() as message):
                buffer.waiting.append(replace(event, message=replace(message, lsn=lsn)))
            case Wrote():
                buffer.waiting.append(event)
            case RolledBackTo(subxids=subxids):
                for subxid in subxids:
                    yield from self._undo(buffer, subxid, lsn)
            case MemoryFull():
                if self._options.streaming != "off":
                    yield from self._block(buffer)
            case Prepared():
                if self._options.two_phase:
                    yield from self._prepare(buffer, lsn)
            case Committed():
                yield from self._commit(buffer, lsn)
            case Aborted():
                yield from self._abort(buffer, lsn)

    def _undo(self, buffer: _Buffer, subxid: int, lsn: Lsn) -> Iterator[Message]:
        buffer.waiting = [wrote for wrote in buffer.waiting if wrote.subxid != subxid]
        if buffer.streamed:
            detailed = self._options.streaming == "parallel"
            yield StreamAbort(buffer.xid, subxid, *((lsn, int(lsn)) if detailed else ()))

    def _block(self, buffer: _Buffer) -> Iterator[Message | Streamed]:
        yield StreamStart(buffer.xid, not buffer.streamed)
        if not buffer.streamed:
            yield from self._origin(buffer)
        for subxid, message in self._changes(buffer, buffer.announced):
            # pgoutput_message knows the top-level transaction only
            yield Streamed(buffer.xid if isinstance(message, LogicalMessage) else subxid, message)
        yield StreamStop()
        buffer.streamed = True

    def _prepare(self, buffer: _Buffer, lsn: Lsn) -> Iterator[Message | Streamed]:
        prepared = (lsn, Lsn(lsn + 8), int(lsn), buffer.xid, f"g{buffer.xid}")
        buffer.prepared = True
        if buffer.streamed:
            yield from self._block(buffer)
            yield StreamPrepare(*prepared)
            if self._server.keeps_prepared:
                self._announced.update(buffer.announced)
            return
        yield BeginPrepare(*prepared)
        yield from self._origin(buffer)
        yield from (message for _, message in self._changes(buffer, self._announced))
        yield Prepare(*prepared)

    def _commit(self, buffer: _Buffer, lsn: Lsn) -> Iterator[Message | Streamed]:
        end = (lsn, Lsn(lsn + 8), int(lsn))
        if buffer.prepared:
            yield CommitPrepared(*end, buffer.xid, f"g{buffer.xid}")
        elif buffer.streamed:
            yield from self._block(buffer)
            yield StreamCommit(buffer.xid, *end)
            self._announced.update(buffer.announced)
        elif buffer.waiting or not self._server.skips_empty:
            yield Begin(lsn, int(lsn), buffer.xid)
            yield from self._origin(buffer)
            yield from (message for _, message in self._changes(buffer, self._announced))
            yield Commit(*end)

    def _abort(self, buffer: _Buffer, lsn: Lsn) -> Iterator[Message]:
        if buffer.prepared:
            yield RollbackPrepared(Lsn(8), Lsn(lsn + 8), 0, int(lsn), buffer.xid, f"g{buffer.xid}")
        else:
            yield from self._undo(buffer, buffer.xid, lsn)

    def _origin(self, buffer: _Buffer) -> Iterator[Message]:
        if buffer.xid in self._origins:
            yield self._origins[buffer.xid]

    def _changes(self, buffer: _Buffer, announced: dict[int, Shape]) -> Iterator[tuple[int, DataMessage]]:
        """With the subtransaction of each; what an earlier message announced is not announced again."""
        for wrote in buffer.waiting:
            for shape in wrote.shapes:
                relid = shape.relation.relid
                if self._newest.get(relid) != shape:
                    self._forget(relid)
                if relid not in announced:
                    announced[relid] = self._newest[relid] = shape
                    if shape.type is not None:
                        yield wrote.subxid, shape.type
                    yield wrote.subxid, shape.relation
            yield wrote.subxid, wrote.message
        buffer.waiting = []
