"""Whatever options a window was read with, the same transactions come out of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given

from spark_jobs.logicalrep.errors import LogicalRepError, UnknownMessageError
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.logicalrep.messages import (
    Begin,
    BeginPrepare,
    Commit,
    CommitPrepared,
    Delete,
    Insert,
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
    Truncate,
    Type,
    Update,
)
from spark_jobs.logicalrep.pgoutput.read_message import read_message
from spark_jobs.logicalrep.relation import Relation
from tests.logicalrep.altered_table import ALTERED_UNDER_A_STREAM, S7, WIDER, E, Sent, T, insert
from tests.reference.assembly import assemble
from tests.reference.errors import (
    AmbiguousMessageError,
    MessageOrderError,
    MissingTransactionError,
    UnannouncedRelationError,
)
from tests.reference.transaction import LooseMessage, ReadOptions, Transaction
from tests.streams import NEWEST_SERVER, PROTOCOL_1, READ_OPTIONS, SERVERS, History, Server, histories, messages
from tests.wire import write_message


def assembled(wires: list[bytes], options: ReadOptions) -> list[Transaction | LooseMessage]:
    """Without gids: protocol 1 knows none."""
    found = list(assemble(wires, options))
    return [replace(item, gid=None) if isinstance(item, Transaction) else item for item in found]


@given(histories(), SERVERS, READ_OPTIONS)
def test_every_option_gives_what_protocol_1_gives(history: History, server: Server, options: ReadOptions) -> None:
    expected = assembled(messages(history, NEWEST_SERVER), PROTOCOL_1)
    assert assembled(messages(history, server, options), options) == expected


STREAMED = ReadOptions(4, "parallel", True)
MOOD = Type(90001, "public", "mood")


@given(histories(), SERVERS, READ_OPTIONS)
def test_each_change_keeps_the_relation_message_it_was_sent_with(
    history: History, server: Server, options: ReadOptions
) -> None:
    """Protocol 1 sends transactions whole: there the Relation message in force is the last one before a change."""
    sent = messages(history, server)
    placed = [
        change.data
        for item in assemble(messages(history, server, options), options)
        if isinstance(item, Transaction)
        for change in item.changes
    ]
    assert list(with_relations(placed)) == list(with_relations(sent))


def with_relations(wires: list[bytes]) -> Iterator[tuple[bytes, list[bytes]]]:
    """Each change that has relations, with the last Relation message of each."""
    announced: dict[int, bytes] = {}
    for wire in wires:
        if wire[:1] not in (b"R", b"I", b"U", b"D", b"T"):
            continue
        message = read_message(wire)
        if isinstance(message, Relation):
            announced[message.relid] = wire
        else:
            assert isinstance(message, (Insert, Update, Delete, Truncate))
            relids = message.relids if isinstance(message, Truncate) else [message.relid]
            yield wire, [announced[relid] for relid in relids]


def read(*sent: Message | Streamed, options: ReadOptions = STREAMED) -> list[Transaction | LooseMessage]:
    return list(assemble(map(write_message, sent), options))


def committed(xid: int, lsn: int, *values: bytes) -> list[Message]:
    """An ordinary transaction, its relation announced before."""
    return [Begin(Lsn(lsn), 0, xid), *map(insert, values), Commit(Lsn(lsn), Lsn(lsn + 1), 0)]


def values(transaction: Transaction | LooseMessage) -> list[tuple[int, str, bytes | None]]:
    """Ordinal, message type and an Insert's value."""
    assert isinstance(transaction, Transaction)
    found = []
    for placed in transaction.changes:
        value = placed.message.new[0] if isinstance(placed.message, Insert) else None
        assert value is None or isinstance(value, bytes)
        found.append((placed.ordinal, chr(placed.data[0]), value))
    return found


def test_blocks_of_two_transactions_are_untangled() -> None:
    sent: Sent = [
        *(S7, Streamed(7, T), Streamed(7, insert(b"a")), E),
        *(StreamStart(8, True), Origin(Lsn(0), "o"), Streamed(8, T), Streamed(8, insert(b"x")), E),
        *(StreamStart(7, False), Streamed(9, insert(b"b")), E),
        *(StreamCommit(8, Lsn(20), Lsn(21), 5), StreamCommit(7, Lsn(30), Lsn(31), 6)),
    ]
    first, second = read(*sent)
    assert isinstance(first, Transaction)
    assert (first.xid, first.commit_lsn, first.end_lsn, first.commit_ts, first.origin) == (8, 20, 21, 5, "o")
    assert values(first) == [(0, "R", None), (0, "I", b"x")]
    assert values(second) == [(0, "I", b"a"), (1, "I", b"b")], "t is announced by then"
    assert second.changes[0].data == write_message(insert(b"a"))  # type: ignore[union-attr]


def test_an_aborted_subtransaction_leaves_what_it_announced() -> None:
    sent: Sent = [
        *(S7, Streamed(8, T), Streamed(8, insert(b"gone")), Streamed(7, insert(b"kept")), E),
        *(StreamAbort(7, 8, Lsn(5), 0), StreamStart(7, False), Streamed(7, insert(b"too")), E),
        StreamCommit(7, Lsn(20), Lsn(21), 0),
    ]
    [transaction] = read(*sent)
    assert values(transaction) == [(0, "R", None), (0, "I", b"kept"), (1, "I", b"too")]


def test_a_transaction_aborted_whole_leaves_nothing() -> None:
    assert read(S7, Streamed(7, T), Streamed(7, insert(b"a")), E, StreamAbort(7, 7)) == []
    again: Sent = [S7, Streamed(7, T), Streamed(7, insert(b"b")), E, StreamCommit(7, Lsn(20), Lsn(21), 0)]
    assert len(read(S7, E, StreamAbort(7, 7), *again)) == 1


def test_a_stream_announces_nothing_in_place_of_what_came_later() -> None:
    placed = [message.data for each in read(*ALTERED_UNDER_A_STREAM) for message in each.changes]  # type: ignore[union-attr]
    assert [relations for _, relations in with_relations(placed)] == [[write_message(WIDER)]] * 2


def test_a_prepared_transaction_stands_at_its_commit() -> None:
    sent: Sent = [
        *(BeginPrepare(Lsn(5), Lsn(6), 0, 7, "g"), T, insert(b"a"), Prepare(Lsn(5), Lsn(6), 0, 7, "g")),
        *committed(8, 10, b"b"),
        CommitPrepared(Lsn(20), Lsn(21), 3, 7, "g"),
    ]
    between, prepared = read(*sent)
    assert values(between) == [(0, "R", None), (0, "I", b"b")], "what the prepared transaction announced"
    assert isinstance(prepared, Transaction)
    assert (prepared.commit_lsn, prepared.end_lsn, prepared.commit_ts, prepared.gid) == (20, 21, 3, "g")
    assert values(prepared) == [(0, "I", b"a")]


def test_what_a_rolled_back_prepared_transaction_announced_still_counts() -> None:
    sent: Sent = [
        *(BeginPrepare(Lsn(5), Lsn(6), 0, 7, "g"), T, insert(b"a"), Prepare(Lsn(5), Lsn(6), 0, 7, "g")),
        RollbackPrepared(Lsn(6), Lsn(9), 0, 0, 7, "g"),
        *committed(8, 10, b"b"),
    ]
    [transaction] = read(*sent)
    assert values(transaction) == [(0, "R", None), (0, "I", b"b")]


def test_a_streamed_transaction_can_be_prepared() -> None:
    prepared: Sent = [S7, Streamed(7, T), Streamed(7, insert(b"a")), E, StreamPrepare(Lsn(5), Lsn(6), 0, 7, "g")]
    [transaction] = read(*prepared, CommitPrepared(Lsn(20), Lsn(21), 0, 7, "g"))
    assert values(transaction) == [(0, "R", None), (0, "I", b"a")]
    assert read(*prepared, RollbackPrepared(Lsn(6), Lsn(9), 0, 0, 7, "g")) == []
    assert read(*prepared) == [], "it comes again in the window of its COMMIT PREPARED"


COMMIT_PREPARED = CommitPrepared(Lsn(20), Lsn(21), 0, 7, "g")
ROLLBACK_PREPARED = RollbackPrepared(Lsn(6), Lsn(9), 0, 0, 7, "g")


@pytest.mark.parametrize("end", [[], [COMMIT_PREPARED], [ROLLBACK_PREPARED]], ids=["open", "committed", "rolled back"])
@pytest.mark.parametrize("aborted", [[], [StreamAbort(7, 8, Lsn(5), 0)]], ids=["", "its subtransaction aborted"])
def test_what_a_stream_announced_counts_once_it_is_prepared(end: Sent, aborted: Sent) -> None:
    """Since 19: a plain transaction comes without a Relation message then."""
    sent: Sent = [
        *(S7, Streamed(8, MOOD), Streamed(8, T), Streamed(8, insert(b"a")), E, *aborted),
        StreamPrepare(Lsn(5), Lsn(6), 0, 7, "g"),
        *committed(9, 10, b"b"),
        *end,
        *committed(10, 30, b"c"),
    ]
    first, *_, last = read(*sent)
    assert values(first) == [(0, "Y", None), (0, "R", None), (0, "I", b"b")]
    assert values(last) == [(0, "I", b"c")]


def test_a_rollback_of_what_was_prepared_before_the_window_is_ignored() -> None:
    assert read(RollbackPrepared(Lsn(6), Lsn(9), 0, 0, 7, "g")) == []


def test_a_loose_message_stands_where_it_was_emitted() -> None:
    loose = LogicalMessage(False, Lsn(9), "p", b"x")
    found = read(S7, Streamed(7, T), Streamed(7, insert(b"a")), E, loose, StreamCommit(7, Lsn(20), Lsn(21), 0))
    assert [type(item) for item in found] == [LooseMessage, Transaction]
    assert found[0] == LooseMessage(write_message(loose), loose)


def test_a_streamed_message_before_an_aborted_subtransaction_is_ambiguous() -> None:
    emitted = Streamed(7, LogicalMessage(True, Lsn(3), "p", b"secret"))
    undone: Sent = [S7, Streamed(7, T), emitted, Streamed(8, insert(b"a")), E, StreamAbort(7, 8)]
    with pytest.raises(AmbiguousMessageError, match=r"commit LSN 0/14: .*transaction 7 .*subtransaction 8") as refused:
        read(*undone, StreamCommit(7, Lsn(20), Lsn(21), 0))
    assert "secret" not in str(refused.value)
    assert read(*undone, StreamAbort(7, 7)) == [], "it is of no consequence where nothing is committed"


BEGIN, COMMIT = committed(7, 10)
PREPARED = BeginPrepare(Lsn(5), Lsn(6), 0, 7, "g")


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        ([E], MessageOrderError),
        ([S7, StreamStart(8, True)], MessageOrderError),
        ([S7, COMMIT], MessageOrderError),
        ([S7], MessageOrderError),
        ([S7, E, S7], MessageOrderError),
        ([StreamStart(7, False)], MessageOrderError),
        ([S7, E, StreamAbort(7, 8), StreamStart(7, False), Streamed(8, T)], MessageOrderError),
        ([BEGIN], MessageOrderError),
        ([BEGIN, BEGIN], MessageOrderError),
        ([BEGIN, S7], MessageOrderError),
        ([COMMIT], MessageOrderError),
        ([BEGIN, Commit(Lsn(11), Lsn(12), 0)], MessageOrderError),
        ([*committed(7, 10), *committed(8, 10)], MessageOrderError),
        ([PREPARED], MessageOrderError),
        ([PREPARED, COMMIT], MessageOrderError),
        ([BEGIN, Prepare(Lsn(5), Lsn(6), 0, 7, "g")], MessageOrderError),
        ([PREPARED, Prepare(Lsn(5), Lsn(6), 0, 8, "g")], MessageOrderError),
        ([PREPARED, Prepare(Lsn(5), Lsn(6), 0, 7, "g")] * 2, MessageOrderError),
        ([T], MessageOrderError),
        ([insert(b"a")], MessageOrderError),
        ([Origin(Lsn(1), "o")], MessageOrderError),
        ([LogicalMessage(True, Lsn(1), "p", b"")], MessageOrderError),
        ([BEGIN, LogicalMessage(False, Lsn(1), "p", b"")], MessageOrderError),
        ([BEGIN, insert(b"a")], UnannouncedRelationError),
        ([S7, Streamed(7, insert(b"a"))], UnannouncedRelationError),
        ([StreamCommit(7, Lsn(20), Lsn(21), 0)], MissingTransactionError),
        ([StreamPrepare(Lsn(20), Lsn(21), 0, 7, "g")], MissingTransactionError),
        ([CommitPrepared(Lsn(20), Lsn(21), 0, 7, "g")], MissingTransactionError),
        ([PREPARED, Prepare(Lsn(5), Lsn(6), 0, 7, "g"), CommitPrepared(Lsn(9), Lsn(9), 0, 8, "g")],
         MissingTransactionError),
    ],
)  # fmt: skip
def test_what_no_server_sends_is_refused(sent: Sent, error: type[LogicalRepError]) -> None:
    with pytest.raises(error):
        read(*sent)


@pytest.mark.parametrize(
    ("options", "sent", "error"),
    [
        (PROTOCOL_1, S7, UnknownMessageError),
        (ReadOptions(2, "on"), PREPARED, UnknownMessageError),
        (ReadOptions(4, "off", True), S7, MessageOrderError),
        (ReadOptions(4, "on", False), PREPARED, MessageOrderError),
    ],
)
def test_what_was_not_asked_for_is_refused(options: ReadOptions, sent: Message, error: type[LogicalRepError]) -> None:
    with pytest.raises(error):
        read(sent, options=options)
