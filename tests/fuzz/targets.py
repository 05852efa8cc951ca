"""What is fuzzed: each target takes bytes and fails on anything but the errors that the decoders promise.

To add one: a function here, its place in ``TARGETS`` (at the end: a kept corpus stays valid), seeds in ``corpus``.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pytest

from spark_jobs.decode.binary.cast import cast_binary
from spark_jobs.decode.binary.value_text import value_text
from spark_jobs.errors import DecodeError
from spark_jobs.logicalrep.errors import LogicalRepError
from spark_jobs.logicalrep.lsn import Lsn, Window
from spark_jobs.logicalrep.pgoutput.read_message import read_message, read_streamed_message
from spark_jobs.logicalrep.test_decoding.read_line import read_line
from spark_jobs.schema.lake_types import lake_type
from spark_jobs.schema.wire_type import wire_type
from tests.capture.pgoutput.assembled_rows import in_columns, one_by_one
from tests.decode import logical_messages, row_changes, row_lines
from tests.decode.binary_values import RECORDED, assert_same
from tests.reference.transaction import ReadOptions
from tests.wire import write_message

WHOLE_LOG = Window(Lsn(0), Lsn(2**62))
READ_OPTIONS = (
    ReadOptions(1, "off", False),
    ReadOptions(2, "on", False),
    ReadOptions(3, "on", True),
    ReadOptions(4, "parallel", True),
)
MAX_WIDTH = 8
BINARY_TYPES = tuple(sorted({typid for typid, _, _ in RECORDED}))


def packed(messages: Iterable[bytes]) -> bytes:
    """Several messages in one input: each behind its length in two bytes."""
    return b"".join(struct.pack(">H", len(message)) + message for message in messages)


def unpacked(data: bytes) -> Iterator[bytes]:
    """Any bytes are messages to this: the last one is what is left."""
    while len(data) >= 2:
        end = 2 + int.from_bytes(data[:2], "big")
        yield data[2:end]
        data = data[end:]


def one_message(data: bytes) -> None:
    """Object reader, any protocol, inside a stream block and outside: a typed error or what the bytes say."""
    choice = data[0]
    read = read_streamed_message if choice & 4 else read_message
    try:
        message = read(data[1:], proto_version=choice % 4 + 1)
    except LogicalRepError:
        return
    assert write_message(message) == data[1:]


def both_decoders(data: bytes) -> None:
    """Row changes: the columnar decoder accepts and reads what ``read_change`` does."""
    width, wires = data[0] % MAX_WIDTH, list(unpacked(data[1:]))
    expected = row_changes.outcome(wires, width)
    if isinstance(expected, LogicalRepError):
        with pytest.raises(DecodeError, match=re.escape(str(expected))):
            row_changes.decode(wires, width)
    else:
        assert row_changes.decode(wires, width) == expected


def both_assemblies(data: bytes) -> None:
    """A window: typed errors only, and where the object assembly accepts it, the columnar one gives the same rows."""
    options, wires = READ_OPTIONS[data[0] % len(READ_OPTIONS)], list(unpacked(data[1:]))
    try:
        expected = one_by_one(wires, options)
    except LogicalRepError:
        expected = None
    try:
        rows = in_columns(wires, WHOLE_LOG, cuts=[data[0] >> 4], memory=99)
    except DecodeError:
        return  # stricter on purpose: it knows the window
    # more lenient on purpose: it does not look into tuples
    assert expected is None or rows == expected


def one_line(data: bytes) -> None:
    """test_decoding, line by line: a typed error or a line."""
    try:
        read_line(data)
    except LogicalRepError:
        return


def both_line_decoders(data: bytes) -> None:
    """test_decoding's rows: the columnar decoder accepts and reads what ``read_row`` does."""
    row_lines.assert_equal(list(unpacked(data)), row_lines.RELATION)


def both_message_readers(data: bytes) -> None:
    """Message (M): the columnar reader gives the fields that ``read_message`` gives, or both refuse."""
    expected = logical_messages.fields(data)
    assert logical_messages.columns(data) == (None if expected is None else [expected])


def binary_values(data: bytes) -> None:
    """Values in binary, of a built-in type: a typed error, or the lake values of their text."""
    typid = BINARY_TYPES[data[0] % len(BINARY_TYPES)]
    known, to, values = wire_type(typid), lake_type(typid, -1), list(unpacked(data[1:]))
    column = pa.array(values, pa.binary())
    try:
        texts = [value_text(value, known) for value in values]
    except ValueError:
        with pytest.raises(DecodeError):
            cast_binary(column, known, to, name="c", table="s.t", on_unrepresentable="null")
        return
    assert_same(column, pa.array(texts, pa.string()), known, to)


TARGETS: tuple[Callable[[bytes], None], ...] = (
    one_message,
    both_decoders,
    both_assemblies,
    one_line,
    both_line_decoders,
    both_message_readers,
    binary_values,
)
