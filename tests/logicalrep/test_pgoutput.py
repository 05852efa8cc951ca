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
from spark_jobs.logicalrep.messages import UNCHANGED_TOAST, Begin, BinaryValue, Insert, Message, Update, commit_time
from spark_jobs.logicalrep.pgoutput import read_change, read_message
from spark_jobs.logicalrep.relation import Relation, RelationColumn, fingerprint
from tests.strategies import MESSAGES, damaged
from tests.wire import write_message

RELATION = Relation(16384, "public", "t", "d", (RelationColumn("id", 20, -1, True), RelationColumn("v", 25, -1, False)))


@given(MESSAGES)
def test_a_message_is_read_as_it_was_written(message: Message) -> None:
    assert read_message(write_message(message)) == message


@given(MESSAGES)
def test_every_shorter_message_is_refused(message: Message) -> None:
    data = write_message(message)
    for size in range(len(data)):
        with pytest.raises(LogicalRepError):
            read_message(data[:size])


@given(MESSAGES, st.binary(min_size=1, max_size=3))
def test_bytes_after_the_end_are_refused(message: Message, extra: bytes) -> None:
    with pytest.raises(TrailingBytesError):
        read_message(write_message(message) + extra)


@given(st.data(), MESSAGES)
def test_damage_is_a_typed_error_or_another_whole_message(data: st.DataObject, message: Message) -> None:
    wire = data.draw(damaged(write_message(message)))
    try:
        read = read_message(wire)
    except LogicalRepError:
        return
    assert write_message(read) == wire


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
