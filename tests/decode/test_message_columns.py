"""Logical messages as columns: equal to ``read_message`` on every input, also on damaged ones."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.decode.message_columns import (
    MESSAGES_SCHEMA,
    DamagedMessageError,
    has_prefix,
    lsn_text,
    message_columns,
)
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.logicalrep.messages import LogicalMessage
from tests.decode.logical_messages import COMMITTED, columns, fields, logged
from tests.wire import write_message

LSNS = st.integers(0, (1 << 63) - 1).map(Lsn)
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
MESSAGES = st.builds(LogicalMessage, st.booleans(), LSNS, TEXT, st.binary(max_size=40))


def test_the_row_of_a_message() -> None:
    data = write_message(LogicalMessage(True, Lsn(0x16_B374_D848), "outbox.order", b"\0{}"))
    loose = write_message(LogicalMessage(False, Lsn(0x1_0000_0001), "", b""))
    batch = message_columns(logged(data, loose))
    assert batch.schema == MESSAGES_SCHEMA
    first, second = batch.to_pylist()
    assert first == {
        "window": 7,
        "commit_lsn_number": 0x10_0000_0000,
        "ordinal": 0,
        "commit_lsn": "10/0",
        "xid": 900,
        "commit_time": COMMITTED,
        "transactional": True,
        "lsn": "16/B374D848",
        "prefix": "outbox.order",
        "content": b"\0{}",
        "origin": "elsewhere",
    }
    assert (second["lsn"], second["prefix"], second["content"], second["xid"]) == ("1/1", "", b"", None)


@given(st.lists(MESSAGES, min_size=1, max_size=8), st.integers(0, 3))
def test_it_equals_the_readable_decoder(messages: list[LogicalMessage], offset: int) -> None:
    data = [write_message(message) for message in messages]
    assert columns(*data) == [fields(one) for one in data]
    sliced = message_columns(logged(*data).slice(offset)) if offset < len(data) else None
    if sliced is not None:
        assert sliced.column("content").to_pylist() == [message.content for message in messages[offset:]]


@given(MESSAGES, st.data())
def test_a_damaged_one_is_refused_where_the_readable_decoder_refuses_it(
    message: LogicalMessage, data: st.DataObject
) -> None:
    whole = write_message(message)
    at = data.draw(st.integers(0, len(whole) - 1))
    flipped = whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :]
    for changed in (whole[:at], whole + b"x", flipped):
        read = fields(changed)
        assert columns(whole, changed) == (None if read is None else [fields(whole), read])


def test_the_error_names_the_first_damaged_one() -> None:
    good = write_message(LogicalMessage(True, Lsn(1), "p", b"content"))
    with pytest.raises(DamagedMessageError) as caught:
        message_columns(logged(good, good[:-1], b"M"))
    text = str(caught.value)
    assert text.startswith("window 7, commit LSN 10/1, ordinal 1: a logical message is not understood: message content")
    assert "\n" not in text
    assert caught.value.window == 7


def test_the_rows_of_lines_of_test_decoding() -> None:
    lines = (
        b"message: transactional: 1 prefix: outbox, of mine, sz: 7 content:a\nb 'c'",
        b"message: transactional: 0 prefix: , sz: 0 content:",
    )
    assert columns(*lines) == [(True, None, "outbox, of mine", b"a\nb 'c'"), (False, "10/1", "", b"")]
    for damaged in (lines[0] + b"x", lines[0][:-1], b"message:", b"COMMIT 7"):
        with pytest.raises(DamagedMessageError, match="ordinal 1: a logical message is not understood"):
            message_columns(logged(lines[0], damaged))


@given(st.lists(LSNS, max_size=5))
def test_lsns_print_as_postgresql_prints_them(lsns: list[Lsn]) -> None:
    array = pa.array(map(int, lsns), pa.int64()).to_numpy()
    assert lsn_text(array).to_pylist() == [str(lsn) for lsn in lsns]


def test_prefix_patterns() -> None:
    prefixes = ["outbox", "outbox.a", "audit", "audit.x", "audit*", "", "AUDIT.x"]
    kept = [
        prefix
        for prefix, wanted in zip(
            prefixes, has_prefix(pa.array(prefixes), ["outbox", "audit.*"]).to_pylist(), strict=True
        )
        if wanted
    ]
    assert kept == ["outbox", "audit.x"]
    assert has_prefix(pa.array(prefixes), ["*"]).to_pylist() == [True] * 7
    assert has_prefix(pa.array(prefixes), []).to_pylist() == [False] * 7
