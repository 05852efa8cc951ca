"""Streams and prepared transactions, assembled in columns: what protocol 1 gives, and what ``logicalrep`` assembles."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.capture.pgoutput.assembly import UnattributedMessageError
from spark_jobs.logicalrep.relation import fingerprint
from tests.capture.pgoutput.assembled_rows import WINDOW, in_columns, landed, one_by_one
from tests.logicalrep.altered_table import ALTERED_UNDER_A_STREAM, WIDER
from tests.reference.errors import AmbiguousMessageError
from tests.reference.transaction import ReadOptions
from tests.streams import NEWEST_SERVER, READ_OPTIONS, SERVERS, History, Server, histories, messages, window
from tests.wire import write_message


@pytest.mark.slow
@settings(max_examples=300)
@given(
    histories(),
    SERVERS,
    READ_OPTIONS,
    st.lists(st.integers(0, 80), max_size=8),
    st.sampled_from([0, 99, 1 << 20]),
)
def test_every_option_gives_the_rows_of_protocol_1(
    history: History, server: Server, options: ReadOptions, cuts: list[int], memory: int
) -> None:
    wires = messages(history, server, options)
    try:
        expected = one_by_one(wires, options)
    except AmbiguousMessageError:
        with pytest.raises(UnattributedMessageError, match="nothing says"):
            in_columns(wires, window(history), cuts, memory)
        return
    assert in_columns(wires, window(history), cuts, memory) == expected
    plain = messages(history, NEWEST_SERVER)
    assert in_order(landed(wires, window(history), cuts, memory)) == in_order(landed(plain, window(history)))


def in_order(rows: pa.Table) -> list[dict[str, Any]]:
    """With announcements. Several before one Truncate have one place in the log's order."""
    return sorted(
        rows.to_pylist(),
        key=lambda row: (row["commit_lsn"], row["ordinal"], row["kind"] not in "RY", row["relid"] or 0, row["data"]),
    )


@pytest.mark.parametrize("cuts", [[], list(range(20))], ids=["one batch", "a batch for each message"])
def test_a_stream_announces_nothing_in_place_of_what_came_later(cuts: list[int]) -> None:
    wires = [write_message(message) for message in ALTERED_UNDER_A_STREAM]
    rows = in_columns(wires, WINDOW, cuts)
    assert [row.version for row in rows] == [fingerprint(write_message(WIDER))] * 2
