"""The binary form of a type: by its OID for built-in types, for others by the catalogue's facts in the change log.

A type that is not built in is recognised by the C names of its output and send functions, never by its own name: an
enum, a domain over text and citext all send text, whatever they are called.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum

from spark_jobs.schema.relation_facts import ColumnFacts, RelationFacts, TypeFacts, means_the_same_everywhere


class Family(Enum):
    """Types with the same binary form and the same conversion to text."""

    ARRAY = "array"
    BIT = "bit"
    BOOL = "bool"
    BOX = "box"
    BYTEA = "bytea"
    CHAR = '"char"'
    CIRCLE = "circle"
    DATE = "date"
    FLOAT4 = "float4"
    FLOAT8 = "float8"
    HSTORE = "hstore"
    INT2 = "int2"
    INT4 = "int4"
    INT8 = "int8"
    INTERVAL = "interval"
    LINE = "line"
    LSEG = "lseg"
    LSN = "pg_lsn"
    LSN_OF_19 = "pg_lsn since PostgreSQL 19"
    MACADDR = "macaddr"
    MONEY = "money"
    MULTIRANGE = "multirange"
    NETWORK = "inet"
    NO_SEND = "no send function: always sent as text"
    NUMERIC = "numeric"
    PATH = "path"
    POINT = "point"
    POLYGON = "polygon"
    RANGE = "range"
    RECORD = "record"
    SNAPSHOT = "pg_snapshot"
    TEXT = "text"
    TID = "tid"
    TIME = "time"
    TIMESTAMP = "timestamp"
    TIMESTAMPTZ = "timestamptz"
    TIMETZ = "timetz"
    TSQUERY = "tsquery"
    TSVECTOR = "tsvector"
    UINT4 = "oid"
    UINT8 = "xid8"
    UNKNOWN = "cannot be read"
    UUID = "uuid"
    VECTOR = "int2vector"
    VERSIONED_TEXT = "jsonb"


@dataclass(frozen=True)
class WireType:
    """``parts``: an array's element, a range's subtype, a multirange's range, a record's attributes.

    ``delimiter`` separates the elements of an array of this type.
    """

    typid: int
    name: str
    family: Family
    delimiter: str = ","
    parts: tuple[WireType, ...] = ()

    @property
    def readable(self) -> bool:
        """Whether binary values can be converted to the text that PostgreSQL prints. Also true if the type has no send
        function, so that values are always sent as text."""
        return self.family is Family.NO_SEND or self._readable

    @property
    def _readable(self) -> bool:
        known = self.family not in (Family.UNKNOWN, Family.NO_SEND)
        return known and all(part._readable for part in self.parts)

    def same_form(self, other: WireType) -> bool:
        """Whether both read the same bytes as the same text, whatever the types are called."""
        return (
            (self.family, self.delimiter, len(self.parts)) == (other.family, other.delimiter, len(other.parts))
        ) and all(map(WireType.same_form, self.parts, other.parts))

    def part(self, typid: int) -> WireType:
        """The part with the type that a value names. Raises ValueError if that is unknown."""
        for part in self.parts:
            if part.typid == typid:
                return part
        known = built_in(typid) if means_the_same_everywhere(typid) else None
        if known is None:
            raise ValueError("a part of an unknown type")
        return known


def wire_type(typid: int, types: Iterable[TypeFacts] = ()) -> WireType:
    """The binary form of ``typid``, of family UNKNOWN if facts are missing. ``types``: the facts of every type behind
    it that is not built in."""
    return _resolved(typid, {facts.typid: facts for facts in types})


def printed_otherwise(server_version: int) -> list[int]:
    """The built-in types that this server prints in another way than the oldest: their ``TypeFacts`` are landed, and
    say so. Since PostgreSQL 19, the second half of a pg_lsn has all its digits."""
    lsn = _SCALARS[Family.LSN]["pg_lsn"]
    arrays = [array for array, element in _ARRAYS.items() if element == lsn]
    return [lsn, *arrays] if server_version >= 190_000 else []


def unreadable_in_binary(facts: RelationFacts) -> tuple[ColumnFacts, ...]:
    """The columns whose binary values cannot be read (``regclass``, types of unknown extensions). If there are any, the
    table can only be followed in text."""
    return tuple(
        column
        for column in facts.columns
        if not column.attgenerated and not wire_type(column.base_typid, facts.types).readable
    )


_FORMS = {
    ("array_out", "array_send"): Family.ARRAY,
    ("range_out", "range_send"): Family.RANGE,
    ("multirange_out", "multirange_send"): Family.MULTIRANGE,
    ("record_out", "record_send"): Family.RECORD,
    ("enum_out", "enum_send"): Family.TEXT,
    ("pg_lsn_out", "pg_lsn_send"): Family.LSN_OF_19,
    ("textout", "textsend"): Family.TEXT,
    ("varcharout", "varcharsend"): Family.TEXT,
    ("nameout", "namesend"): Family.TEXT,
    ("$libdir/hstore:hstore_out", "$libdir/hstore:hstore_send"): Family.HSTORE,
    ("$libdir/ltree:ltree_out", "$libdir/ltree:ltree_send"): Family.VERSIONED_TEXT,
    ("$libdir/ltree:lquery_out", "$libdir/ltree:lquery_send"): Family.VERSIONED_TEXT,
    ("$libdir/ltree:ltxtq_out", "$libdir/ltree:ltxtq_send"): Family.VERSIONED_TEXT,
}


def _resolved(typid: int, types: dict[int, TypeFacts]) -> WireType:
    if typid not in types:
        known = built_in(typid) if means_the_same_everywhere(typid) else None
        return known or WireType(typid, f"{typid}", Family.UNKNOWN)
    facts = types[typid]
    parts = tuple(_resolved(part, types) for part in facts.parts)
    if facts.typtype == "d":
        return replace(parts[0], typid=typid, name=facts.typname)
    if not facts.typsend:
        return WireType(typid, facts.typname, Family.NO_SEND)
    family = _FORMS.get((facts.typoutput, facts.typsend), Family.UNKNOWN)
    return WireType(typid, facts.typname, family, facts.typdelim, parts)


# pg_type.dat: OIDs that never change
_SCALARS = {
    Family.BIT: {"bit": 1560, "varbit": 1562},
    Family.BOOL: {"bool": 16},
    Family.BOX: {"box": 603},
    Family.BYTEA: {"bytea": 17},
    Family.CHAR: {'"char"': 18},
    Family.CIRCLE: {"circle": 718},
    Family.DATE: {"date": 1082},
    Family.FLOAT4: {"float4": 700},
    Family.FLOAT8: {"float8": 701},
    Family.INT2: {"int2": 21},
    Family.INT4: {"int4": 23},
    Family.INT8: {"int8": 20},
    Family.INTERVAL: {"interval": 1186},
    Family.LINE: {"line": 628},
    Family.LSEG: {"lseg": 601},
    Family.LSN: {"pg_lsn": 3220},
    Family.MACADDR: {"macaddr": 829, "macaddr8": 774},
    Family.MONEY: {"money": 790},
    Family.NETWORK: {"inet": 869, "cidr": 650},
    Family.NO_SEND: {"aclitem": 1033, "gtsvector": 3642},
    Family.NUMERIC: {"numeric": 1700},
    Family.PATH: {"path": 602},
    Family.POINT: {"point": 600},
    Family.POLYGON: {"polygon": 604},
    Family.SNAPSHOT: {"txid_snapshot": 2970, "pg_snapshot": 5038},
    Family.TEXT: {"text": 25, "name": 19, "bpchar": 1042, "varchar": 1043, "json": 114, "xml": 142, "refcursor": 1790},
    Family.TID: {"tid": 27},
    Family.TIME: {"time": 1083},
    Family.TIMESTAMP: {"timestamp": 1114},
    Family.TIMESTAMPTZ: {"timestamptz": 1184},
    Family.TIMETZ: {"timetz": 1266},
    Family.TSQUERY: {"tsquery": 3615},
    Family.TSVECTOR: {"tsvector": 3614},
    Family.UINT4: {"oid": 26, "xid": 28, "cid": 29},
    Family.UINT8: {"xid8": 5069, "oid8": 6437},
    Family.UUID: {"uuid": 2950},
    Family.VERSIONED_TEXT: {"jsonb": 3802, "jsonpath": 4072},
}
# (type, part)
_VECTORS = {22: 21, 30: 26}
_RANGES = {3904: 23, 3906: 1700, 3908: 1114, 3910: 1184, 3912: 1082, 3926: 20}
_MULTIRANGES = {4451: 3904, 4532: 3906, 4533: 3908, 4534: 3910, 4535: 3912, 4536: 3926}
# fmt: off
_ARRAYS = {
    143: 142, 199: 114, 271: 5069, 629: 628, 651: 650, 719: 718, 775: 774, 791: 790, 1000: 16, 1001: 17, 1002: 18,
    1003: 19, 1005: 21, 1006: 22, 1007: 23, 1009: 25, 1010: 27, 1011: 28, 1012: 29, 1013: 30, 1014: 1042, 1015: 1043,
    1016: 20, 1017: 600, 1018: 601, 1019: 602, 1020: 603, 1021: 700, 1022: 701, 1027: 604, 1028: 26, 1034: 1033,
    1040: 829, 1041: 869, 1115: 1114, 1182: 1082, 1183: 1083, 1185: 1184, 1187: 1186, 1231: 1700, 1270: 1266,
    1561: 1560, 1563: 1562, 2201: 1790, 2949: 2970, 2951: 2950, 3221: 3220, 3643: 3614, 3644: 3642, 3645: 3615,
    3807: 3802, 3905: 3904, 3907: 3906, 3909: 3908, 3911: 3910, 3913: 3912, 3927: 3926, 4073: 4072, 5039: 5038,
    6150: 4451, 6151: 4532, 6152: 4533, 6153: 4534, 6155: 4535, 6157: 4536, 6442: 6437,
}
# fmt: on


# not cached: a cached function would be pickled by name, and executors do not have our modules
def built_in(typid: int) -> WireType | None:
    """The binary form of a built-in type. None if it is not in the tables above: the ``reg*`` types, whose text depends
    on the catalogue, and types that only the catalogue uses."""
    for family, names in _SCALARS.items():
        for name, oid in names.items():
            if oid == typid:
                return WireType(typid, name, family, ";" if family is Family.BOX else ",")
    for family, parts in (
        (Family.VECTOR, _VECTORS),
        (Family.RANGE, _RANGES),
        (Family.MULTIRANGE, _MULTIRANGES),
        (Family.ARRAY, _ARRAYS),
    ):
        part = built_in(parts[typid]) if typid in parts else None
        if part is not None:
            return WireType(typid, f"{family.value} of {part.name}", family, parts=(part,))
    return None
