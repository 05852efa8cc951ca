"""The TRUNCATEs of one table among its change-log rows: where and when they happened, and the changes after them."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.change_log.schema import RowKind
from spark_jobs.errors import DecodeError, NeedsSnapshotError, new_snapshot
from spark_jobs.logicalrep.errors import LogicalRepError
from spark_jobs.logicalrep.lsn import Lsn, Position
from spark_jobs.logicalrep.messages import Truncate
from spark_jobs.logicalrep.pgoutput.read_message import read_message
from spark_jobs.logicalrep.test_decoding.changes import read_truncate
from spark_jobs.schema.table_shape import TableShape


@dataclass(frozen=True)
class Commit:
    """``at``: its time, in microseconds since 1970, UTC; None where the plugin did not send it."""

    position: Position
    at: int | None


def changes_after(rows: pa.Table, after: Position | None) -> pa.Table:
    """The I, U and D rows after the last TRUNCATE, whose position is ``after``."""
    if after is None:
        return rows
    commit_lsn, lsn = rows.column("commit_lsn"), pa.scalar(int(after.commit_lsn), pa.int64())
    later = pc.and_(pc.equal(commit_lsn, lsn), pc.greater(rows.column("ordinal"), after.ordinal))
    keep = pc.or_(pc.greater(commit_lsn, lsn), later)
    return rows.filter(pc.and_(keep, pc.not_equal(rows.column("kind"), RowKind.TRUNCATE.value)))


def last_truncate(rows: pa.Table, shape: TableShape) -> Position | None:
    """Where the table was last emptied, None if it was not.

    Raises DecodeError for a message that is not a TRUNCATE of this table, NeedsSnapshotError for a TRUNCATE of a single
    partition.
    """
    return max(_positions(truncates_of(rows), shape), default=None)


def truncate_commits(rows: pa.Table, shape: TableShape) -> tuple[Commit, ...]:
    """Where and when the table was emptied, in order. Raises as ``last_truncate`` does."""
    truncates = truncates_of(rows)
    times = truncates.column("commit_time").cast(pa.int64()).to_pylist()
    found = (Commit(position, at) for position, at in zip(_positions(truncates, shape), times, strict=True))
    return tuple(sorted(found, key=lambda commit: commit.position))


def without_truncates(rows: pa.Table) -> pa.Table:
    """The I, U and D rows."""
    return rows.filter(pc.not_equal(rows.column("kind"), RowKind.TRUNCATE.value))


def truncates_of(rows: pa.Table) -> pa.Table:
    """The T rows."""
    return rows.filter(pc.equal(rows.column("kind"), RowKind.TRUNCATE.value))


def _positions(truncates: pa.Table, shape: TableShape) -> list[Position]:
    lsns, ordinals = truncates.column("commit_lsn").to_pylist(), truncates.column("ordinal").to_pylist()
    found = [Position(Lsn(lsn), ordinal) for lsn, ordinal in zip(lsns, ordinals, strict=True)]
    for position, data in zip(found, truncates.column("data").to_pylist(), strict=True):
        _check_truncate(data, position, shape)
    return found


def _check_truncate(data: bytes, position: Position, shape: TableShape) -> None:
    try:
        if data.startswith(b"t"):  # a line of test_decoding
            is_of_table = (shape.name.nspname, shape.name.relname) in read_truncate(data).tables
            if not is_of_table:
                raise NeedsSnapshotError(
                    f"TRUNCATE at {position} empties one partition of {shape.name}: which rows it held is not known",
                    hint=new_snapshot(shape.name),
                )
            return
        message = read_message(data)
    except LogicalRepError as error:
        raise DecodeError(f"TRUNCATE at {position} of {shape.name} is not understood: {error}") from error
    if not isinstance(message, Truncate) or shape.relid not in message.relids:
        raise DecodeError(f"the change log holds another message at {position} as a TRUNCATE of {shape.name}")
