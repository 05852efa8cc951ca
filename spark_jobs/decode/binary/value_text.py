"""Renders one binary value as PostgreSQL's output function would: the readable reference, for every family of types.

The text is that of a session with the settings that we pin (``postgres.session_settings``).
"""

from __future__ import annotations

from collections.abc import Callable

from spark_jobs.decode.binary import container_text, datetime_text, geometry_text, scalar_text, search_text
from spark_jobs.decode.binary.network_text import network_text
from spark_jobs.logicalrep.cursor import Cursor
from spark_jobs.schema.wire_type import Family, WireType


def value_text(data: bytes, wire_type: WireType) -> str:
    """The value's text. Raises ValueError when its type's send function does not write such data, or the type cannot be
    read."""
    cursor = Cursor(data)
    scalar = _SCALARS.get(wire_type.family)
    if scalar is not None:
        text = scalar(cursor)
    elif wire_type.family in _CONTAINERS:
        text = _CONTAINERS[wire_type.family](cursor, wire_type, value_text)
    else:
        raise ValueError("a type that cannot be read")
    cursor.finish()
    return text


_SCALARS: dict[Family, Callable[[Cursor], str]] = {
    Family.BIT: scalar_text.bit_text,
    Family.BOOL: scalar_text.bool_text,
    Family.BOX: geometry_text.box_text,
    Family.BYTEA: scalar_text.bytea_text,
    Family.CHAR: scalar_text.char_text,
    Family.CIRCLE: geometry_text.circle_text,
    Family.DATE: datetime_text.date_text,
    Family.FLOAT4: scalar_text.float4_wire,
    Family.FLOAT8: scalar_text.float8_wire,
    Family.INT2: scalar_text.integer(2),
    Family.INT4: scalar_text.integer(4),
    Family.INT8: scalar_text.integer(8),
    Family.INTERVAL: datetime_text.interval_text,
    Family.LINE: geometry_text.line_text,
    Family.LSEG: geometry_text.lseg_text,
    Family.LSN: scalar_text.lsn_text,
    Family.LSN_OF_19: scalar_text.lsn_of_19_text,
    Family.MACADDR: scalar_text.macaddr_text,
    Family.MONEY: scalar_text.money_text,
    Family.NETWORK: network_text,
    Family.NUMERIC: scalar_text.numeric_text,
    Family.PATH: geometry_text.path_text,
    Family.POINT: geometry_text.point_text,
    Family.POLYGON: geometry_text.polygon_text,
    Family.SNAPSHOT: scalar_text.snapshot_text,
    Family.TEXT: scalar_text.text_wire,
    Family.TID: scalar_text.tid_text,
    Family.TIME: datetime_text.time_text,
    Family.TIMESTAMP: datetime_text.timestamp_text,
    Family.TIMESTAMPTZ: datetime_text.timestamptz_text,
    Family.TIMETZ: datetime_text.timetz_text,
    Family.TSQUERY: search_text.tsquery_text,
    Family.TSVECTOR: search_text.tsvector_text,
    Family.UINT4: scalar_text.integer(4, signed=False),
    Family.UINT8: scalar_text.integer(8, signed=False),
    Family.UUID: scalar_text.uuid_text,
    Family.VERSIONED_TEXT: scalar_text.versioned_text,
}
_CONTAINERS: dict[Family, Callable[[Cursor, WireType, container_text.ValueText], str]] = {
    Family.ARRAY: container_text.array_text,
    Family.HSTORE: container_text.hstore_text,
    Family.MULTIRANGE: container_text.multirange_text,
    Family.RANGE: container_text.range_text,
    Family.RECORD: container_text.record_text,
    Family.VECTOR: container_text.vector_text,
}
