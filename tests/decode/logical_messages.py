"""Logical messages as columns and, as the oracle, through ``read_message``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from spark_jobs.decode.message_columns import (
    DamagedMessageError,
    message_columns,
)
from spark_jobs.logicalrep.errors import LogicalRepError
from spark_jobs.logicalrep.messages import LogicalMessage
from spark_jobs.logicalrep.pgoutput.read_message import read_message

COMMITTED = datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)


def logged(*data: bytes) -> pa.RecordBatch:
    """Rows of the log as they are read, one per message, all of window 7."""
    count = len(data)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([7] * count, pa.int64()),
            pa.array([0x10_0000_0000 + n for n in range(count)], pa.int64()),
            pa.array(range(count), pa.int64()),
            pa.array([900 + n for n in range(count)], pa.int64()),
            pa.array([COMMITTED] * count, pa.timestamp("us", tz="UTC")),
            pa.array(["elsewhere"] * count, pa.string()),
            pa.array(data, pa.binary()),
        ],
        names=["window", "commit_lsn", "ordinal", "xid", "commit_time", "origin", "data"],
    )


def fields(data: bytes) -> tuple[Any, ...] | None:
    """As ``read_message`` has it; None where it is damaged."""
    try:
        message = read_message(data)
    except LogicalRepError:
        return None
    if not isinstance(message, LogicalMessage):
        return None
    return message.transactional, str(message.lsn), message.prefix, message.content


def columns(*data: bytes) -> list[tuple[Any, ...]] | None:
    try:
        read = message_columns(logged(*data))
    except DamagedMessageError:
        return None
    return [(row["transactional"], row["lsn"], row["prefix"], row["content"]) for row in read.to_pylist()]
