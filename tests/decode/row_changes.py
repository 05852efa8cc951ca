"""Row changes of pgoutput through the columnar decoder and, as the oracle, through ``read_change``."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spark_jobs.decode import columnar
from spark_jobs.decode.columnar import Changes, decode_changes, message_bounds
from spark_jobs.decode.tuple_vectors import TupleVectors
from spark_jobs.logicalrep.errors import LogicalRepError
from spark_jobs.logicalrep.lsn import Lsn, Position
from spark_jobs.logicalrep.messages import UNCHANGED_TOAST, BinaryValue, Change, Delete, Insert, TupleData, Update
from spark_jobs.logicalrep.pgoutput.read_message import read_change
from spark_jobs.logicalrep.relation import Relation, RelationColumn

RELID = 16384


def relation(width: int) -> Relation:
    columns = tuple(RelationColumn(f"c{index}", 25, -1, index == 0) for index in range(width))
    return Relation(RELID, "public", "t", "d", columns)


def decode(wires: list[bytes], width: int, *, at_once: int = columnar.MESSAGES_AT_ONCE) -> list[Change]:
    data, bounds = message_bounds(pa.array([b"before", *wires], pa.binary()).slice(1))
    decoded = decode_changes(
        data, bounds[:-1], bounds[1:], relation(width), lambda row: Position(Lsn(7), row), at_once=at_once
    )
    return [change_at(decoded, row) for row in range(len(decoded))]


def change_at(decoded: Changes, row: int) -> Change:
    """The object the object decoder would have made."""
    slot = int(decoded.old_slots[row])
    old = _tuple(decoded.data, decoded.old, slot) if slot >= 0 else None
    old_key = old if decoded.old_kinds[row] == columnar.OLD_KEY else None
    old_tuple = old if decoded.old_kinds[row] == columnar.OLD_TUPLE else None
    if decoded.kinds[row] == columnar.INSERT:
        return Insert(RELID, _tuple(decoded.data, decoded.new, row))
    if decoded.kinds[row] == columnar.UPDATE:
        return Update(RELID, old_key, old_tuple, _tuple(decoded.data, decoded.new, row))
    return Delete(RELID, old_key, old_tuple)


def _tuple(data: np.ndarray, vectors: TupleVectors, slot: int) -> TupleData:
    values: list[bytes | BinaryValue | object | None] = []
    for kind, start, length in zip(
        vectors.kinds[:, slot], vectors.starts[:, slot], vectors.lengths[:, slot], strict=True
    ):
        value = data[start : start + length].tobytes()
        values.append({"t": value, "b": BinaryValue(value), "n": None, "u": UNCHANGED_TOAST}[chr(kind)])
    return tuple(values)  # type: ignore[arg-type]


def outcome(wires: list[bytes], width: int) -> list[Change] | LogicalRepError:
    try:
        return [read_change(wire, relation(width)) for wire in wires]
    except LogicalRepError as error:
        return error
