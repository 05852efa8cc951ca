"""The type map from PostgreSQL to the lake, for snapshots and for changes.

Types that are not in the map become strings with PostgreSQL's own text output.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum

import pyarrow as pa

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_ARRAY = re.compile(r"array<(.+)>")


class LakeKind(Enum):
    """The families of lake types; the value is Spark's name of the type."""

    BOOLEAN = "boolean"
    SMALLINT = "smallint"
    INT = "int"
    BIGINT = "bigint"
    FLOAT = "float"
    DOUBLE = "double"
    DECIMAL = "decimal"
    DATE = "date"
    TIMESTAMP_NTZ = "timestamp_ntz"
    TIMESTAMP = "timestamp"
    BINARY = "binary"
    STRING = "string"
    ARRAY = "array"
    VARIANT = "variant"


_WITH_MISFITS = (
    LakeKind.DECIMAL,
    LakeKind.DATE,
    LakeKind.TIMESTAMP,
    LakeKind.TIMESTAMP_NTZ,
    LakeKind.ARRAY,
    LakeKind.VARIANT,
)


FLOATS = (LakeKind.FLOAT, LakeKind.DOUBLE)


@dataclass(frozen=True)
class LakeType:
    """A column's type in the lake. ``precision`` and ``scale`` are a decimal's, else 0; ``element`` is an array's.

    ``chosen``: the configuration chose it in place of the type map's. Then a decimal may be unable to hold every value,
    and binary holds the bytes of a uuid.

    ``has_no_empty_text``: the table is to be partitioned by these texts, and the type is the same as without. Delta
    reads an empty text in a partition's name as null. https://github.com/delta-io/delta/blob/master/PROTOCOL.md#partition-value-serialization
    """

    kind: LakeKind
    precision: int = 0
    scale: int = 0
    element: LakeType | None = None
    chosen: bool = False
    has_no_empty_text: bool = field(default=False, compare=False)

    @classmethod
    def of_sql(cls, sql: str) -> LakeType | None:
        """The type that Spark SQL calls so, None if it is none of the type map's."""
        if digits := _DECIMAL.fullmatch(sql):
            return cls(LakeKind.DECIMAL, int(digits[1]), int(digits[2]))
        if array := _ARRAY.fullmatch(sql):
            element = cls.of_sql(array[1])
            return None if element is None else cls(LakeKind.ARRAY, element=element)
        kind = next((kind for kind in LakeKind if kind.value == sql), None)
        return None if kind is None else cls(kind)

    @property
    def sql(self) -> str:
        """The type in Spark SQL's DDL."""
        if self.kind is LakeKind.DECIMAL:
            return f"decimal({self.precision},{self.scale})"
        if self.element is not None:
            return f"array<{self.element.sql}>"
        return str(self.kind.value)

    @property
    def has_misfits(self) -> bool:
        """Whether PostgreSQL may have a value of the column that this type cannot hold."""
        return self.kind in _WITH_MISFITS or self.has_no_empty_text

    @property
    def decoded_sql(self) -> str:
        """The type of the values that the decoder yields: a variant is JSON text until Spark writes it."""
        return "string" if self.kind is LakeKind.VARIANT else self.sql

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of the values that the decoder yields."""
        if self.kind is LakeKind.DECIMAL:
            return pa.decimal128(self.precision, self.scale)
        if self.element is not None:
            return pa.list_(self.element.arrow)
        return _ARROW[self.kind]


_ARROW = {
    LakeKind.BOOLEAN: pa.bool_(),
    LakeKind.SMALLINT: pa.int16(),
    LakeKind.INT: pa.int32(),
    LakeKind.BIGINT: pa.int64(),
    LakeKind.FLOAT: pa.float32(),
    LakeKind.DOUBLE: pa.float64(),
    LakeKind.DATE: pa.date32(),
    LakeKind.TIMESTAMP_NTZ: pa.timestamp("us"),
    LakeKind.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    LakeKind.BINARY: pa.binary(),
    LakeKind.STRING: pa.string(),
    LakeKind.VARIANT: pa.string(),
}

# type OIDs of pg_type.dat: fixed for built-in types in every version
NUMERIC_OID = 1700
_FLAT = {
    16: LakeKind.BOOLEAN,
    17: LakeKind.BINARY,  # bytea
    20: LakeKind.BIGINT,
    21: LakeKind.SMALLINT,
    23: LakeKind.INT,
    26: LakeKind.BIGINT,  # oid: unsigned, does not fit int
    700: LakeKind.FLOAT,
    701: LakeKind.DOUBLE,
    1082: LakeKind.DATE,
    1114: LakeKind.TIMESTAMP_NTZ,
    1184: LakeKind.TIMESTAMP,
}
_VARHDRSZ = 4
_DECIMAL_MAX_PRECISION = 38


def lake_type(atttypid: int, atttypmod: int) -> LakeType:
    """The lake type for a base type and its modifier, -1 for none. The caller resolves domains."""
    if atttypid == NUMERIC_OID:
        return _numeric(atttypmod)
    return LakeType(_FLAT.get(atttypid, LakeKind.STRING))


def is_widened(old: LakeType, new: LakeType) -> bool:
    """Whether both are decimals of one scale, and ``new`` has more digits: all values of ``old`` print the same."""
    both = old.kind is new.kind is LakeKind.DECIMAL
    return both and old.scale == new.scale and old.precision < new.precision


def _numeric(atttypmod: int) -> LakeType:
    """``numeric(p, s)`` with 0 <= s <= p <= 38 is a decimal. Every other numeric is a string with its exact digits."""
    if atttypmod < _VARHDRSZ:
        return LakeType(LakeKind.STRING)
    precision = (atttypmod - _VARHDRSZ) >> 16 & 0xFFFF
    scale = (atttypmod - _VARHDRSZ) & 0x7FF
    if scale >= 0x400:  # an 11-bit signed number since PostgreSQL 15
        scale -= 0x800
    if 0 <= scale <= precision <= _DECIMAL_MAX_PRECISION:
        return LakeType(LakeKind.DECIMAL, precision, scale)
    return LakeType(LakeKind.STRING)
