"""Batches gathered into one table are the rows of all of them, whatever their values take."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_jobs.delta.gathered_rows import gathered

SCHEMA = pa.schema(
    [pa.field("n", pa.int64()), pa.field("data", pa.binary(), nullable=False), pa.field("maybe", pa.binary())]
)
ROWS = [{"n": n, "data": b"x" * (n % 5), "maybe": None if n % 2 else b"y"} for n in range(50)]


@pytest.mark.parametrize(("size", "chunks"), [(100, 1), (1000, 1), (99, 2), (10, 13), (0, 13)])
def test_all_rows_in_their_order(size: int, chunks: int) -> None:
    whole = pa.RecordBatch.from_pylist(ROWS, SCHEMA)
    # in slices of one batch, of which none begins with its first value, and some have no rows, or only empty values
    batches = [whole.slice(first, 4) for first in range(0, 50, 4)]
    table = gathered([whole.slice(0, 0), *batches, whole.slice(50)], SCHEMA, size)
    assert table.to_pylist() == ROWS
    assert table.schema == SCHEMA
    assert table.column("data").num_chunks == chunks
    table.validate(full=True)


def test_no_rows() -> None:
    assert gathered([], SCHEMA, 0).num_rows == 0
    empty = pa.RecordBatch.from_pylist([{"n": 1, "data": b"", "maybe": None}], SCHEMA)
    assert gathered([empty], SCHEMA, 0).to_pylist() == [{"n": 1, "data": b"", "maybe": None}]
