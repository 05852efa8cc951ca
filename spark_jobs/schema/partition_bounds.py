"""Which rows a partition may hold, where PostgreSQL and Spark certainly agree on them.

Attaching, detaching or dropping a partition sends no row events, but its bounds say which rows may have changed. They
are parsed from what the catalogue prints and normalised, so that the change log can keep them and both sides can be
queried by them. Bounds that the two sides might order or compare differently are not supported: hash partitions,
DEFAULT, expressions, ranges of text, and all but a few plain types.
https://www.postgresql.org/docs/current/ddl-partitioning.html
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

_INT2, _INT4, _INT8, _TEXT, _VARCHAR, _UUID = 21, 23, 20, 25, 1043, 2950
_DATE, _TIMESTAMP, _TIMESTAMPTZ = 1082, 1114, 1184
_INTEGERS = (_INT2, _INT4, _INT8)
# the types of partition keys that both sides order alike, with their names in PostgreSQL and in the lake
ORDERED_TYPES = {
    _INT2: ("int2", "smallint"),
    _INT4: ("int4", "int"),
    _INT8: ("int8", "bigint"),
    _DATE: ("date", "date"),
    _TIMESTAMP: ("timestamp", "timestamp_ntz"),
    _TIMESTAMPTZ: ("timestamptz", "timestamp"),
}
# the types that both sides at least compare for equality alike
LISTED_TYPES = {**ORDERED_TYPES, _TEXT: ("text", "string"), _VARCHAR: ("text", "string"), _UUID: ("uuid", "string")}

_VALUE = r"MINVALUE|MAXVALUE|-?\d+|'(?:[^']|'')*'"
_VALUES = rf"\(((?:{_VALUE})(?:, (?:{_VALUE}))*)\)"
_RANGE = re.compile(rf"FOR VALUES FROM {_VALUES} TO {_VALUES}", re.DOTALL)
_LIST = re.compile(rf"FOR VALUES IN {_VALUES}", re.DOTALL)
_INSTANT = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.(\d{1,6}))?(\+00)?")
_UUID_TEXT = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True)
class PartitionKey:
    """How a table is partitioned: ``strategy`` is r, l or h (range, list, hash). ``columns`` are names; None for an
    expression, and for a column that is not compared in its type's default way."""

    strategy: str
    columns: tuple[str | None, ...]


@dataclass(frozen=True)
class BoundColumn:
    """A column of the root, by attribute number and type OID."""

    attnum: int
    typid: int


@dataclass(frozen=True)
class RangeEnd:
    """One end of a range: ``values`` for the first columns of the key; ``beyond`` is "min" or "max" if MINVALUE or
    MAXVALUE follows them."""

    values: tuple[str, ...]
    beyond: str = ""

    @property
    def place(self) -> tuple[tuple[int, Any], ...]:
        """A sort key for ends on the same columns."""
        own = tuple((1, int(value) if _is_integer(value) else value) for value in self.values)
        return own + {"": (), "min": ((0, ""),), "max": ((2, ""),)}[self.beyond]


@dataclass(frozen=True)
class Bound:
    """The rows of one partition within its parent: ``listed`` values of the only column, or those from ``lower``
    (inclusive) to ``upper`` (exclusive). Values are printed as PostgreSQL does in UTC, fractions with six digits."""

    columns: tuple[BoundColumn, ...]
    listed: tuple[str, ...] = ()
    lower: RangeEnd | None = None
    upper: RangeEnd | None = None

    def is_apart_from(self, other: Bound) -> bool:
        """Whether certainly no row meets both bounds."""
        if self.columns != other.columns:
            return False
        if self.lower and self.upper and other.lower and other.upper:
            return self.upper.place <= other.lower.place or other.upper.place <= self.lower.place
        return bool(self.listed and other.listed) and not set(self.listed) & set(other.listed)


@dataclass(frozen=True)
class Region:
    """The rows that a partition may hold: those that meet its bound and all bounds of its ancestors below the root. The
    outermost bound comes first."""

    bounds: tuple[Bound, ...]

    def covers(self, other: Region) -> bool:
        """Whether ``other`` is this region, or that of a partition below it."""
        return other.bounds[: len(self.bounds)] == self.bounds

    def is_apart_from(self, bounds: Sequence[Bound | None]) -> bool:
        """Whether certainly no row of this region meets all of ``bounds``; None stands for an unknown bound."""
        return any(own.is_apart_from(other) for own in self.bounds for other in bounds if other is not None)

    @property
    def columns(self) -> frozenset[BoundColumn]:
        return frozenset(column for bound in self.bounds for column in bound.columns)

    @classmethod
    def of_json(cls, fields: Mapping[str, Any]) -> Region:
        """The region from what ``dataclasses.asdict`` made of it. Raises KeyError or TypeError."""
        return cls(tuple(_bound_of_json(bound) for bound in fields["bounds"]))


def outermost(regions: Sequence[Region]) -> tuple[Region, ...]:
    """The distinct regions, without those that another one covers."""
    unique = tuple(dict.fromkeys(regions))
    return tuple(each for each in unique if not any(other.covers(each) for other in unique if other != each))


def bound_of(printed: str | None, key: PartitionKey | None, columns: Mapping[str, tuple[int, int]]) -> Bound | None:
    """The bound that ``pg_get_expr`` ``printed`` for a partition of a table partitioned by ``key``; None if the two
    sides may not agree on its rows. ``columns``: the root's columns, name → (attribute number, type OID)."""
    if printed is None or key is None or key.strategy not in ("r", "l"):
        return None
    known = LISTED_TYPES if key.strategy == "l" else ORDERED_TYPES
    numbered = [columns.get(name) if name is not None else None for name in key.columns]
    parts = tuple(BoundColumn(*column) for column in numbered if column is not None and column[1] in known)
    if len(parts) != len(key.columns):
        return None
    if key.strategy == "l":
        match = _LIST.fullmatch(printed)
        listed = [_normalised(value, parts[0].typid) for value in _values(match[1])] if match else [None]
        return None if None in listed else Bound(parts, listed=tuple(value for value in listed if value is not None))
    match = _RANGE.fullmatch(printed)
    lower, upper = (_range_end(match[side], parts) for side in (1, 2)) if match else (None, None)
    return None if lower is None or upper is None else Bound(parts, lower=lower, upper=upper)


def _range_end(printed: str, columns: Sequence[BoundColumn]) -> RangeEnd | None:
    values: list[str] = []
    for value, column in zip(_values(printed), columns, strict=True):
        if value in ("MINVALUE", "MAXVALUE"):
            return RangeEnd(tuple(values), value[:3].lower())
        normalised = _normalised(value, column.typid)
        if normalised is None:
            return None
        values.append(normalised)
    return RangeEnd(tuple(values))


def _values(printed: str) -> list[str]:
    return re.findall(_VALUE, printed, re.DOTALL)


def _normalised(printed: str, typid: int) -> str | None:
    """One value in its normal form; None if it has no counterpart in the lake, or is not understood."""
    text = printed[1:-1].replace("''", "'") if printed.startswith("'") else printed
    try:
        if typid in _INTEGERS:
            return str(int(text))
        if typid == _DATE:
            return date.fromisoformat(text).isoformat()
        if typid in (_TIMESTAMP, _TIMESTAMPTZ):
            return _instant(text, with_zone=typid == _TIMESTAMPTZ)
    except ValueError:  # infinity, years before 1 or after 9999
        return None
    if typid == _UUID:
        return text if _UUID_TEXT.fullmatch(text) else None
    # Spark replaces ${...} in statements
    return None if "${" in text or printed in ("MINVALUE", "MAXVALUE") else text


def _instant(text: str, *, with_zone: bool) -> str | None:
    match = _INSTANT.fullmatch(text)
    if match is None or bool(match[3]) != with_zone:
        return None
    datetime.fromisoformat(match[1])
    return f"{match[1]}.{match[2] or '':0<6}"


def _is_integer(value: str) -> bool:
    return re.fullmatch(r"-?\d+", value) is not None


def _bound_of_json(fields: Mapping[str, Any]) -> Bound:
    lower, upper = (
        None if end is None else RangeEnd(tuple(end["values"]), end["beyond"])
        for end in (fields["lower"], fields["upper"])
    )
    columns = tuple(BoundColumn(**column) for column in fields["columns"])
    return Bound(columns, tuple(fields["listed"]), lower, upper)
