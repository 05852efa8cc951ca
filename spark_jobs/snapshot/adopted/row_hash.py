"""One hash for all values of a row, computed alike by PostgreSQL from its columns, and by this process from the lake's.

Each value becomes a text that no other value of its type has; the texts are joined with their lengths. A value that our
type does not hold gets no text of PostgreSQL's, so its row is equal to none. Of the SHA-256 of all, 128 bits are used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from spark_jobs.decode.datetimes import DAY, FIRST_MICROSECOND, LAST_MICROSECOND
from spark_jobs.schema.lake_types import LakeKind, LakeType
from spark_jobs.schema.relation_facts import ColumnFacts
from spark_jobs.snapshot.export import output_text

HASH = np.dtype([("first", "<u8"), ("second", "<u8")])
# with where the row is in the source
COMPARED = np.dtype([*HASH.descr, ("block", ">u4"), ("item", ">u2")])
_BYTES = 16
_NULL, _NOT_OURS = "-", "?"
_TIMES = {LakeKind.DATE, LakeKind.TIMESTAMP, LakeKind.TIMESTAMP_NTZ}
_FLOATS = {LakeKind.FLOAT: ("float4send", 32, "int"), LakeKind.DOUBLE: ("float8send", 64, "bigint")}
_HASHED = {*LakeKind} - {LakeKind.ARRAY, LakeKind.VARIANT}


def is_hashed(to: LakeType) -> bool:
    """Whether values of this type have such texts."""
    return to.kind in _HASHED and not to.chosen


def compared_rows(columns: Sequence[ColumnFacts], rows: sql.Composable) -> str:
    """The query for one value of ``COMPARED`` for each row. ``rows``: what follows SELECT's list of columns."""
    texts = [sql.SQL("{} AS {}").format(_text(column), _name(place)) for place, column in enumerate(columns)]
    joined = [
        sql.SQL("coalesce(pg_catalog.length({0}) || ':' || {0}, {1})").format(_name(place), sql.Literal(_NULL))
        for place in range(len(columns))
    ]
    # OFFSET 0: a text is printed once and not twice
    return (
        sql.SQL(
            "SELECT pg_catalog.substr(pg_catalog.sha256(pg_catalog.convert_to({}, 'UTF8')), 1, {}) || place"
            " FROM (SELECT pg_catalog.tidsend(ctid) AS place, {} {} OFFSET 0) AS compared"
        )
        .format(sql.SQL(" || ").join(joined), sql.Literal(_BYTES), sql.SQL(", ").join(texts), rows)
        .as_string(None)
    )


def _name(place: int) -> sql.Identifier:
    return sql.Identifier(f"v{place}")


def _text(column: ColumnFacts) -> sql.Composable:
    name, kind = sql.Identifier(column.attname), column.lake_type.kind
    if kind is LakeKind.STRING:
        return output_text(column)
    if kind is LakeKind.BINARY:
        return sql.SQL("pg_catalog.encode({}, 'hex')").format(name)
    if kind in _TIMES:  # infinity stays what it is
        return sql.SQL("pg_catalog.trunc(EXTRACT(epoch FROM {}) * 1000000)::text").format(name)
    if kind is LakeKind.DECIMAL:
        return sql.SQL("pg_catalog.trunc({} * 1e{})::text").format(name, sql.Literal(column.lake_type.scale))
    if known := _FLOATS.get(kind):
        send, bits, integer = known
        shape = "('x' || pg_catalog.encode(pg_catalog.{}({}), 'hex'))::bit({})::{}::text"
        return sql.SQL(shape).format(sql.SQL(send), name, sql.Literal(bits), sql.SQL(integer))
    return sql.SQL("{}::text").format(name)


def row_hashes(rows: pa.RecordBatch, types: Sequence[LakeType]) -> np.ndarray:
    """The hashes of rows with values of the lake's ``types``: an array of ``HASH``."""
    nothing = pa.scalar("", pa.large_string())
    texts = [_joined(_texts(rows.column(place), to)) for place, to in enumerate(types)]
    whole = pc.binary_join_element_wise(*texts, nothing).cast(pa.large_binary()).to_pylist()
    digests = b"".join(hashlib.sha256(row).digest()[:_BYTES] for row in whole)
    return np.frombuffer(digests, HASH)


def _joined(texts: pa.Array) -> pa.Array:
    long = texts.cast(pa.large_string())
    lengths = pc.utf8_length(long).cast(pa.large_string())
    return pc.binary_join_element_wise(lengths, long, pa.scalar(":", pa.large_string())).fill_null(_NULL)


def _texts(values: pa.Array, to: LakeType) -> pa.Array:
    if to.kind is LakeKind.BINARY:
        return pa.array([None if value is None else value.hex() for value in values.to_pylist()], pa.string())
    if to.kind in _TIMES:
        is_date = to.kind is LakeKind.DATE
        moments = pc.multiply(values.cast(pa.int32()).cast(pa.int64()), DAY) if is_date else values.cast(pa.int64())
        is_ours = pc.and_(pc.greater_equal(moments, FIRST_MICROSECOND), pc.less_equal(moments, LAST_MICROSECOND))
        return pc.if_else(is_ours, moments.cast(pa.string()), _NOT_OURS)
    if to.kind is LakeKind.DECIMAL:
        return _reinterpreted(values, pa.decimal128(38, 0)).cast(pa.string())
    if to.kind in _FLOATS:
        bits = pa.int32() if to.kind is LakeKind.FLOAT else pa.int64()
        return _reinterpreted(values, bits).cast(pa.string())
    return values.cast(pa.string())


def _reinterpreted(values: pa.Array, to: pa.DataType) -> pa.Array:
    """The same bits."""
    return pa.Array.from_buffers(to, len(values), values.buffers(), offset=values.offset)


@dataclass(frozen=True)
class CopiedRows:
    """Which rows another tool's table has: their hashes, ascending by the first of their two numbers. Rows that have
    this one in common are left out. 16 bytes for each row."""

    first: np.ndarray
    second: np.ndarray

    @classmethod
    def of(cls, hashes: Iterable[np.ndarray]) -> CopiedRows:
        """``hashes``: those of ``row_hashes``."""
        pairs = np.concatenate([np.empty(0, HASH), *hashes])
        first = pairs["first"]
        order = np.argsort(first)
        like_next = np.append(first[order[1:]] == first[order[:-1]], False)[: len(order)]
        alone = order[~(like_next | np.roll(like_next, 1))]
        return cls(first[alone], pairs["second"][alone])

    def places(self, hashes: np.ndarray) -> np.ndarray:
        """The number of the row that is equal to each, -1 if there is none."""
        places = self.places_by_first(hashes["first"])
        if not len(self.second):
            return places
        return np.where(self.second[places] == hashes["second"], places, -1)

    def places_by_first(self, numbers: np.ndarray) -> np.ndarray:
        """The number of the row whose hash has each of ``numbers`` as its first one, -1 if there is none."""
        if not len(self.first):
            return np.full(len(numbers), -1)
        places = np.minimum(np.searchsorted(self.first, numbers), len(self.first) - 1)
        return np.where(self.first[places] == numbers, places, -1)
