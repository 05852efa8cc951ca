"""Renders binary geometric types as text (``src/backend/utils/adt/geo_ops.c``)."""

from __future__ import annotations

from spark_jobs.decode.binary.scalar_text import float8_wire
from spark_jobs.logicalrep.cursor import Cursor

_POINT_SIZE = 16


def point_text(cursor: Cursor) -> str:
    return f"({float8_wire(cursor)},{float8_wire(cursor)})"


def lseg_text(cursor: Cursor) -> str:
    return f"[{_points(cursor, 2)}]"


def box_text(cursor: Cursor) -> str:
    return _points(cursor, 2)


def line_text(cursor: Cursor) -> str:
    return f"{{{float8_wire(cursor)},{float8_wire(cursor)},{float8_wire(cursor)}}}"


def circle_text(cursor: Cursor) -> str:
    return f"<{point_text(cursor)},{float8_wire(cursor)}>"


def path_text(cursor: Cursor) -> str:
    closed = cursor.flags(1, "closed")
    points = _counted_points(cursor)
    return f"({points})" if closed else f"[{points}]"


def polygon_text(cursor: Cursor) -> str:
    return f"({_counted_points(cursor)})"


def _counted_points(cursor: Cursor) -> str:
    size = cursor.int32("number of points")
    if cursor.left != size * _POINT_SIZE:
        raise ValueError("points")
    return _points(cursor, size)


def _points(cursor: Cursor, size: int) -> str:
    return ",".join(point_text(cursor) for _ in range(size))
