"""Every message is read back as it was written, and nothing else is read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.logicalrep.errors import (
    FieldError,
    LogicalRepError,
    RelationMismatchError,
    TrailingBytesError,
    TruncatedMessageError,
    UnknownColumnError,
    UnknownMessageError,
    UnknownTupleError,
)
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.logicalrep.messages import (
    UNCHANGED_TOAST,
    Begin,
    BinaryValue,
    Insert,
    Message,
    Origin,
    StreamAbort,
    Streamed,
    StreamStop,
    Update,
    commit_time,
)
from spark_jobs.logicalrep.pgoutput.read_message import read_change, read_message, read_streamed_message
from spark_jobs.logicalrep.relation import Relation, RelationColumn, fingerprint
from tests.strategies import ALL_MESSAGES, MESSAGES, MESSAGES_ADDED, STREAMED, damaged
from tests.wire import without_stream_xid, write_message

RELATION = Relation(16384, "public", "t", "d", (RelationColumn("id", 20, -1, True), RelationColumn("v", 25, -1, False)))


@given(MESSAGES)
def test_a_message_is_read_as_it_was_written(message: Message) -> None:
    for protocol in (1, 2, 3, 4):
        assert read_message(write_message(message), proto_version=protocol) == message


@given(ALL_MESSAGES)
def test_protocol_4_reads_them_all(message: Message) -> None:
    assert read_message(write_message(message), proto_version=4) == message


@given(data=st.data())
@pytest.mark.parametrize("since", MESSAGES_ADDED)
def test_a_protocol_refuses_what_a_later_one_added(data: st.DataObject, since: int) -> None:
    wire = write_message(data.draw(MESSAGES_ADDED[since]))
    expected = TrailingBytesError if since == 4 else UnknownMessageError  # 4 only lengthens a message of 2
    with pytest.raises(UnknownMessageError, match=r"not one of protocol 1, but of protocol [23]"):
        read_message(wire)
    for protocol in range(2, since):
        with pytest.raises(expected):
            read_message(wire, proto_version=protocol)
    for protocol in range(since, 5):
        assert write_message(read_message(wire, proto_version=protocol)) == wire


@given(STREAMED)
def test_a_data_message_in_a_stream_has_the_xid_of_its_subtransaction(message: Streamed) -> None:
    wire = write_message(message)
    assert read_streamed_message(wire) == message
    assert without_stream_xid(wire) == write_message(message.message)


@given(ALL_MESSAGES)
def test_other_messages_are_the_same_in_a_stream(message: Message) -> None:
    wire = write_message(message)
    if chr(wire[0]) not in "RYIUDTM":
        assert read_streamed_message(wire, proto_version=4) == message


def test_an_origin_in_a_stream_has_no_xid() -> None:
    assert read_streamed_message(b"O" + bytes(8) + b"n\0") == Origin(Lsn(0), "n")
    assert read_streamed_message(b"E") == StreamStop()


def test_only_protocol_4_has_where_and_when_a_stream_was_aborted() -> None:
    short = b"A\0\0\0\7\0\0\0\x08"
    for protocol in (2, 3, 4):
        assert read_message(short, proto_version=protocol) == StreamAbort(7, 8)
    long = short + b"\0\0\0\0\0\0\0\1" + b"\xff" * 8
    assert read_message(long, proto_version=4) == StreamAbort(7, 8, Lsn(1), -1)


@given(ALL_MESSAGES | STREAMED)
def test_every_shorter_message_is_refused(message: Message | Streamed) -> None:
    wire = write_message(message)
    for size in range(len(wire)):
        if wire[:1] == b"A" and size == 9:
            continue  # a whole message, of a stream that is not parallel
        with pytest.raises(LogicalRepError):
            _read(message, wire[:size])


@given(ALL_MESSAGES | STREAMED, st.binary(min_size=1, max_size=3))
def test_bytes_after_the_end_are_refused(message: Message | Streamed, extra: bytes) -> None:
    short_abort = isinstance(message, StreamAbort) and message.abort_lsn is None
    expected = TruncatedMessageError if short_abort else TrailingBytesError  # there they begin an abort_lsn
    with pytest.raises(expected):
        _read(message, write_message(message) + extra)


@given(st.data(), ALL_MESSAGES | STREAMED)
def test_damage_is_a_typed_error_or_another_whole_message(data: st.DataObject, message: Message | Streamed) -> None:
    wire = data.draw(damaged(write_message(message)))
    try:
        read = _read(message, wire)
    except LogicalRepError:
        return
    assert write_message(read) == wire


def _read(like: Message | Streamed, wire: bytes) -> Message | Streamed:
    if isinstance(like, Streamed):
        return read_streamed_message(wire, proto_version=4)
    return read_message(wire, proto_version=4)


def test_a_protocol_that_does_not_exist_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="proto_version is 1 to 4, got 5"):
        read_message(b"E", proto_version=5)


@pytest.mark.parametrize(
    ("wire", "error"),
    [
        (b"", TruncatedMessageError),
        (b"Z", UnknownMessageError),
        (b"S\0\0\0\1\1", UnknownMessageError),  # a stream message is not of protocol 1
        (b"B" + bytes(20), FieldError),  # final_lsn 0
        (b"C\1" + b"\1" * 24, FieldError),  # flags, unused
        (b"I\0\0\0\1K\0\0", UnknownTupleError),
        (b"U\0\0\0\1K\0\0K\0\0", UnknownTupleError),
        (b"D\0\0\0\1N\0\0", UnknownTupleError),
        (b"I\0\0\0\1N\0\1x", UnknownColumnError),
        (b"I\0\0\0\1N\0\1t\xff\xff\xff\xff", FieldError),  # negative length
        (b"I\0\0\0\1N\0\1t\0\0\0\2a", TruncatedMessageError),
        (b"T\xff\xff\xff\xff\0", FieldError),
        (b"T\0\0\0\0\4", FieldError),
        (b"M\2" + bytes(8) + b"\0\0\0\0\0", FieldError),
        (b"R\0\0\0\1s\0r\0d\0\1\2c\0" + bytes(8), FieldError),  # column flags
        (b"Y\0\0\0\1\xff\0t\0", FieldError),  # not UTF-8
        (b"Y\0\0\0\1s\0t", TruncatedMessageError),  # no NUL
    ],
)
def test_each_fault_has_its_error(wire: bytes, error: type[LogicalRepError]) -> None:
    with pytest.raises(error):
        read_message(wire)


@pytest.mark.parametrize(
    ("wire", "error"),
    [
        (b"S\0\0\0\0\1", FieldError),  # xid 0
        (b"S\0\0\0\1\2", FieldError),  # first segment neither 0 nor 1
        (b"E\0", TrailingBytesError),
        (b"c\0\0\0\1\1" + b"\1" * 24, FieldError),  # flags, unused
        (b"c\0\0\0\1\0" + bytes(24), FieldError),  # commit_lsn 0
        (b"A\0\0\0\1\0\0\0\0", FieldError),  # subxid 0
        (b"A\0\0\0\1\0\0\0\1" + bytes(15), TruncatedMessageError),  # half an abort time
        (b"b" + bytes(28) + b"g\0", FieldError),  # prepare_lsn 0
        (b"b" + b"\1" * 28 + b"g", TruncatedMessageError),  # no NUL after the gid
        (b"P\1" + b"\1" * 28 + b"g\0", FieldError),
        (b"K\1" + b"\1" * 28 + b"g\0", FieldError),
        (b"r\1" + b"\1" * 36 + b"g\0", FieldError),
        (b"p\1" + b"\1" * 28 + b"g\0", FieldError),
        (b"P\0" + b"\1" * 24 + bytes(4) + b"g\0", FieldError),  # xid 0
    ],
)
def test_each_fault_of_the_later_protocols_has_its_error(wire: bytes, error: type[LogicalRepError]) -> None:
    with pytest.raises(error):
        read_message(wire, proto_version=4)


def test_a_streamed_change_without_a_subtransaction_is_refused() -> None:
    with pytest.raises(FieldError, match="xid of the subtransaction is not set"):
        read_streamed_message(b"I" + bytes(4) + b"\0\0\0\1N\0\0")


def test_four_column_kinds() -> None:
    wire = b"I\0\0\0\1N\0\4nut\0\0\0\2hib\0\0\0\1\7"
    assert read_message(wire) == Insert(1, (None, UNCHANGED_TOAST, b"hi", BinaryValue(b"\7")))


def test_old_key_and_old_tuple_are_told_apart() -> None:
    new = b"N\0\1n"
    assert read_message(b"U\0\0\0\1" + new) == Update(1, None, None, (None,))
    assert read_message(b"U\0\0\0\1K\0\1n" + new) == Update(1, (None,), None, (None,))
    assert read_message(b"U\0\0\0\1O\0\1n" + new) == Update(1, None, (None,), (None,))


def test_a_change_must_fit_its_relation() -> None:
    assert read_change(write_message(Insert(16384, (b"1", None))), RELATION) == Insert(16384, (b"1", None))
    others: list[Message] = [
        Insert(16385, (b"1", None)),
        Insert(16384, (b"1",)),
        Update(16384, (b"1",), None, (b"1", None)),
        Begin(Lsn(1), 0, 1),
    ]
    for other in others:
        with pytest.raises(RelationMismatchError):
            read_change(write_message(other), RELATION)


def test_fingerprint_is_63_bits_and_stable() -> None:
    wire = write_message(RELATION)
    assert fingerprint(wire) == fingerprint(bytes(wire)) != fingerprint(wire + b"\0")
    assert all(0 <= fingerprint(bytes([value])) < 2**63 for value in range(256))


def test_commit_time_counts_from_the_postgres_epoch() -> None:
    assert commit_time(1).isoformat() == "2000-01-01T00:00:00.000001+00:00"
