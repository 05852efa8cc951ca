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
from spark_jobs.schema.moment import Moment
from spark_jobs.schema.table_shape import TableShape


@dataclass(frozen=True)
class Truncation:
    """A TRUNCATE: the moment of its commit, and its ordinal in the transaction."""

    moment: Moment
    ordinal: int

    @property
    def position(self) -> Position:
        return Position(self.moment.lsn, self.ordinal)


def changes_after(rows: pa.Table, after: Position) -> pa.Table:
    """The I, U and D rows after the last TRUNCATE, whose position is ``after``."""
    commit_lsn, lsn = rows.column("commit_lsn"), pa.scalar(int(after.commit_lsn), pa.int64())
    later = pc.and_(pc.equal(commit_lsn, lsn), pc.greater(rows.column("ordinal"), after.ordinal))
    keep = pc.or_(pc.greater(commit_lsn, lsn), later)
    return rows.filter(pc.and_(keep, pc.not_equal(rows.column("kind"), RowKind.TRUNCATE.value)))


def truncations(rows: pa.Table, shape: TableShape) -> tuple[Truncation, ...]:
    """Where and when the table was emptied, in order.

    Raises DecodeError for a message that is not a TRUNCATE of this table, NeedsSnapshotError for a TRUNCATE of a single
    partition.
    """
    truncates = truncates_of(rows)
    times = truncates.column("commit_time").cast(pa.int64())
    named = (truncates.column("commit_lsn"), times, truncates.column("ordinal"), truncates.column("data"))
    truncations = []
    for lsn, at, ordinal, data in zip(*(column.to_pylist() for column in named), strict=True):
        truncation = Truncation(Moment(Lsn(lsn), at), ordinal)
        _check_truncate(data, truncation.position, shape)
        truncations.append(truncation)
    return tuple(sorted(truncations, key=lambda truncation: truncation.position))


def without_truncates(rows: pa.Table) -> pa.Table:
    """The I, U and D rows."""
    return rows.filter(pc.not_equal(rows.column("kind"), RowKind.TRUNCATE.value))


def truncates_of(rows: pa.Table) -> pa.Table:
    """The T rows."""
    return rows.filter(pc.equal(rows.column("kind"), RowKind.TRUNCATE.value))


def _check_truncate(data: bytes, position: Position, shape: TableShape) -> None:
    try:
        if data.startswith(b"t"):  # a line of test_decoding
            is_of_table = (shape.relation.nspname, shape.relation.relname) in read_truncate(data).tables
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
