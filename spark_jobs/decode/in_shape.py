"""Rearranges decoded changes of one relation version: from the columns of the wire to those of the lake's table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from spark_jobs.decode.columnar import DELETE, UPDATE, Changes
from spark_jobs.decode.tuple_vectors import ABSENT, LATER, TEXT, UNCHANGED, TupleVectors
from spark_jobs.schema.relation_facts import NOT_UTF_8
from spark_jobs.schema.table_shape import TableShape


def in_shape(part: Changes, places: Sequence[int | None], shape: TableShape) -> Changes:
    """The changes with the shape's columns. ``places``: the place on the wire of each of these, None where the version
    lacks it.

    A column that the version lacks has its ``missing`` value in every tuple; these values are appended to the message
    buffer. Without one, or in an insert if it was ``dropped``, it has nothing there; in an update a dropped one is
    unchanged. A column that the shape lacks is left out.
    """
    if list(places) == list(range(len(part.new.kinds))):
        return part
    values = [
        None if place is not None or column.missing is None else column.missing.encode(errors=NOT_UTF_8)
        for place, column in zip(places, shape.columns, strict=True)
    ]
    starts = len(part.data) + np.cumsum([0, *(len(value or b"") for value in values)])
    behind = np.frombuffer(b"".join(value or b"" for value in values), dtype=np.uint8)
    constants = [None if value is None else (int(at), len(value)) for value, at in zip(values, starts, strict=False)]
    new = _placed(part.new, places, constants, part.kinds != DELETE)
    old = _placed(part.old, places, constants, np.ones(part.old.kinds.shape[1], dtype=bool))
    for index, (place, column) in enumerate(zip(places, shape.columns, strict=True)):
        if place is None and column.dropped:
            new.kinds[index, part.kinds == UPDATE] = UNCHANGED
            old.kinds[index] = ABSENT
    data = np.concatenate([part.data, behind]) if len(behind) else part.data
    return replace(part, data=data, new=new, old=old)


def _placed(
    wire: TupleVectors,
    places: Sequence[int | None],
    constants: Sequence[tuple[int, int] | None],
    has_tuple: np.ndarray,
) -> TupleVectors:
    """``has_tuple``: which changes have it. Its columns do not say so: a table may have had none."""
    placed = TupleVectors.absent(len(places), wire.kinds.shape[1])
    for index, (place, constant) in enumerate(zip(places, constants, strict=True)):
        if place is not None:
            placed.kinds[index], placed.starts[index] = wire.kinds[place], wire.starts[place]
            placed.lengths[index] = wire.lengths[place]
        elif constant is None:
            placed.kinds[index, has_tuple] = LATER
        else:
            placed.kinds[index, has_tuple] = TEXT
            placed.starts[index, has_tuple], placed.lengths[index, has_tuple] = constant
    return placed
