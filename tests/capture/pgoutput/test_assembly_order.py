"""What no server sends, or what a newer one may: the columnar assembly says where, or keeps it as it came."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest

from spark_jobs.capture.pgoutput.assembly import Assembly, UnpreparedTransactionError
from spark_jobs.capture.pgoutput.window_rows import WindowRows
from spark_jobs.capture.transaction_spool import TransactionSpool
from spark_jobs.change_log.schema import CHANGE_LOG_SCHEMA
from spark_jobs.errors import DecodeError
from tests.capture.pgoutput.assembled_rows import WINDOW, in_columns
from tests.capture.pgoutput.packed_messages import (
    P8,
    S7,
    STOP,
    I,
    R,
    begin,
    begin_prepare,
    commit,
    commit_prepared,
    emitted,
    prepare,
    start,
    stream_abort,
    stream_commit,
    streamed,
)

PLAIN = [begin(0x200), R, I, commit(0x200)]

WRONG = {
    "'S' message stands in the wrong place": [begin(0x200), *S7, commit(0x200)],
    "'E' message stands in the wrong place": [*PLAIN, STOP],
    "'c' message stands in the wrong place": [*S7[:-1], stream_commit(7, 0x200), STOP],
    "'B' message stands in the wrong place": [begin_prepare(8), *PLAIN, prepare(8)],
    "'C' message stands in the wrong place": [*S7[:-1], commit(0x200)],
    "'P' message stands in the wrong place": [prepare(8)],
    "'I' message stands in the wrong place": [*S7, I, stream_commit(7, 0x200)],
    "'M' message stands in the wrong place": [
        *S7[:-1],
        streamed(7, emitted(3, transactional=False)),
        STOP,
        stream_commit(7, 0x200),
    ],
    "what begins with 'S' has no end": S7[:-1],
    "what begins with 'b' has no end": P8[:-1],
    "a later stream block of transaction 7": [start(7, first=False), STOP],
    "a second first stream block of transaction 7": [*S7, *S7],
    "StreamCommit of transaction 9, of which nothing has come": [*S7, stream_commit(9, 0x200)],
    "StreamPrepare of transaction 9, of which nothing has come": [*S7, prepare(9, kind=b"p")],
    "Prepare of transaction 9, of which nothing has come": [*P8[:-1], prepare(9)],
    "Prepare of transaction 8 has another gid": [*P8[:-1], prepare(8, b"h")],
    "transaction 8 begins twice": [*P8, *P8],
    "transaction 9 is committed here, and no message said that it was prepared": [*P8, commit_prepared(9, 0x200)],
    "relation 1 was not announced before its change": [start(7), streamed(7, I), STOP, stream_commit(7, 0x200)],
    "a 'I' message is too short for a stream": [start(7), b"I123", STOP, stream_commit(7, 0x200)],
    "a 'I' message has the wrong length": [start(7), streamed(7, b"I12"), STOP],
    "a 'S' message is not understood": [b"S12", STOP],
    "a 'E' message is not understood": [start(7), b"E1"],
    "out of commit order": [*S7, *PLAIN, stream_commit(7, 0x180)],
    "the transaction is not of this window": [*S7, stream_commit(7, 0x99)],
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("cut_everywhere", [False, True])
def test_an_order_that_no_server_sends_raises_and_names_the_place(what: str, cut_everywhere: bool) -> None:
    with pytest.raises(DecodeError) as caught:
        in_columns(WRONG[what], WINDOW, list(range(1, len(WRONG[what]))) if cut_everywhere else [])
    assert what in str(caught.value)
    assert str(caught.value).startswith("window 3 [0/100, 0/100000), commit LSN 0/")
    assert "\n" not in str(caught.value)
    assert caught.value.hint


def test_what_a_commit_prepared_without_its_transaction_needs() -> None:
    with pytest.raises(UnpreparedTransactionError, match="without two_phase, from a slot that was made without it"):
        in_columns([commit_prepared(9, 0x200)], WINDOW)


def test_the_end_of_an_unknown_transaction_is_ignored() -> None:
    """An abort or a rollback of what came before the window takes nothing away."""
    rolled_back = struct.pack("!cBqqqqI", b"r", 0, 0x110, 0x200, 5, 6, 9) + b"g\0"
    assert in_columns([stream_abort(9, 9), stream_abort(9, 10), rolled_back, *PLAIN], WINDOW) == in_columns(
        PLAIN, WINDOW
    )


def test_an_unknown_type_is_dropped_with_its_subtransaction() -> None:
    """It is taken to carry an xid like all others, and then is protocol 1's; one that is too short for that stays."""
    future = b"X" + struct.pack("!I", 1) + b"?"
    sent = [
        *S7[:-1],
        *(streamed(7, future), streamed(70, future), b"Z", STOP),
        *(stream_abort(7, 70), stream_commit(7, 0x200)),
    ]
    rows = WindowRows(3, WINDOW)
    with TransactionSpool() as spool:
        batch = pa.record_batch([pa.array(sent, pa.binary())], names=["data"])
        table = pa.Table.from_batches(list(rows.rows(Assembly(spool).batches(3, WINDOW, [batch]))), CHANGE_LOG_SCHEMA)
    kinds = table.column("kind").to_pylist()
    assert list(zip(kinds, table.column("data").to_pylist(), strict=True)) == [
        ("R", R),
        ("I", I),
        ("X", future),
        ("Z", b"Z"),
    ]
    assert [(each.kind, each.ordinal, each.relids) for each in rows.unknown] == [("X", 1, (1,)), ("Z", 1, (1,))]


def test_a_plain_batch_passes_through_untouched() -> None:
    batch = pa.record_batch([pa.array([*PLAIN, begin(0x300), I], pa.binary())], names=["data"])
    rest = pa.record_batch([pa.array([commit(0x300)], pa.binary())], names=["data"])
    with TransactionSpool() as spool:
        assert [id(each) for each in Assembly(spool).batches(3, WINDOW, [batch, rest])] == [id(batch), id(rest)]
