"""Which column of a Relation message is which column of the lake's table.

A message has names in order, the lake has attribute numbers: a name may be reused for another column, a number never
is. pgoutput sends columns in the order of their numbers, so a Relation message fits a description of the table if its
names are in that order. A range of windows may hold several versions of a relation, each with its own mapping.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from spark_jobs.logicalrep.errors import LogicalRepError
from spark_jobs.logicalrep.pgoutput.read_message import read_message
from spark_jobs.logicalrep.relation import Relation, RelationColumn
from spark_jobs.schema.chosen_types import element_type
from spark_jobs.schema.lake_types import LakeType, is_widened, lake_type
from spark_jobs.schema.relation_facts import ColumnFacts, means_the_same_everywhere
from spark_jobs.schema.table_shape import TableShape

# above all attribute numbers: PostgreSQL's MaxHeapAttributeNumber is 1600
NO_ATTNUM = 1 << 16


@dataclass(frozen=True)
class RelationVersion:
    """One version of a relation: its Relation message, and for each of the shape's columns its place in the message.

    A place is None if the column was added later: rows of this version have its ``missing`` value. It is also None if
    the column was ``dropped`` before. ``places`` is None if the version does not fit the shape: then its changes cannot
    be applied to the lake's table.
    """

    message: bytes
    places: tuple[int | None, ...] | None

    @classmethod
    def of(
        cls,
        message: bytes,
        shape: TableShape,
        descriptions: Iterable[Sequence[KnownColumn]] = (),
        added: Collection[int] = (),
        gone: Collection[int] = (),
        first: Sequence[KnownColumn] = (),
    ) -> RelationVersion:
        """``descriptions``: further ones, besides the shape, that the message may fit. ``added``: the numbers of new
        columns. ``gone``: those of the shape's columns that were dropped before any such message. ``first``: see
        ``attribute_numbers``. A damaged message fits nothing."""
        relation = relation_of(message)
        if relation is None:
            return cls(message, None)
        columns = (column for column in shape.columns if column.attnum not in gone)
        itself = [KnownColumn(c.attnum, c.name, KnownType(c.lake_type, c.atttypid)) for c in columns]
        numbers = attribute_numbers(relation, [itself, *descriptions], first)
        return cls(message, None if numbers is None else _places(relation, numbers, shape, added))


@dataclass(frozen=True)
class KnownColumn:
    """A column from the catalogue's facts, with its type, or from the lake, without it."""

    attnum: int
    name: str
    type: KnownType | None = None

    @classmethod
    def of(cls, column: ColumnFacts) -> KnownColumn:
        return cls(column.attnum, column.attname, KnownType(column.lake_type, column.atttypid))


@dataclass(frozen=True)
class KnownType:
    lake_type: LakeType
    atttypid: int


def attribute_numbers(
    relation: Relation, descriptions: Iterable[Sequence[KnownColumn]], first: Sequence[KnownColumn] = ()
) -> tuple[int, ...] | None:
    """The numbers of the message's columns, by the descriptions that it fits; None if it fits none, or these
    disagree.

    ``first``: the columns that each message begins with. Those that follow them in a message that fits no description
    were dropped before anybody looked, and get numbers from ``NO_ATTNUM`` on."""
    candidates = {numbers for columns in descriptions if (numbers := _numbers(relation, columns)) is not None}
    if not candidates and first:
        unknown = (KnownColumn(NO_ATTNUM + at, wire.name) for at, wire in enumerate(relation.columns[len(first) :]))
        return _numbers(relation, (*first, *unknown))
    return candidates.pop() if len(candidates) == 1 else None


def sent_columns(
    message: bytes, descriptions: Iterable[Sequence[KnownColumn]], first: Sequence[KnownColumn] = ()
) -> dict[int, RelationColumn]:
    """The columns of a Relation message by their numbers, in order; none if these are not known. ``first``: see
    ``attribute_numbers``."""
    relation = relation_of(message)
    numbers = None if relation is None else attribute_numbers(relation, descriptions, first)
    return {} if relation is None or numbers is None else dict(zip(numbers, relation.columns, strict=True))


def relation_of(message: bytes) -> Relation | None:
    """The parsed message; None if it is damaged, or not a Relation message."""
    try:
        relation = read_message(message)
    except LogicalRepError:
        return None
    return relation if isinstance(relation, Relation) else None


def _places(
    relation: Relation, numbers: Sequence[int], shape: TableShape, added: Collection[int]
) -> tuple[int | None, ...] | None:
    at = {number: place for place, number in enumerate(numbers)}
    places = tuple(at.get(column.attnum) for column in shape.columns)
    not_there = False
    for place, column in zip(places, shape.columns, strict=True):
        if place is None and column.attnum not in added and not column.dropped:
            return None
        # numbers are given in order: an added column that is there has all before it there, one of which had its name
        if place is not None and not_there:
            return None
        not_there = not_there or (place is None and not column.dropped)
        if place is not None and not _means(relation.columns[place], KnownType(column.lake_type, column.atttypid)):
            return None
    return places


def _numbers(relation: Relation, columns: Sequence[KnownColumn]) -> tuple[int, ...] | None:
    known = {column.name: column for column in columns}
    matches = [known.get(wire.name) for wire in relation.columns]
    numbers: list[int] = []
    for wire, column in zip(relation.columns, matches, strict=True):
        if column is None or (numbers and numbers[-1] >= column.attnum):
            return None
        if column.type is not None and not _means(wire, column.type):
            return None
        numbers.append(column.attnum)
    return tuple(numbers)


def _means(wire: RelationColumn, known: KnownType) -> bool:
    """Whether the values mean the same in the lake. The type's name may differ, and so may a modifier without effect; a
    decimal may have had fewer digits."""
    if known.lake_type.chosen and wire.atttypid != known.atttypid:
        return False
    if known.lake_type.element is not None and means_the_same_everywhere(known.atttypid):
        return element_type(wire.atttypid, wire.atttypmod) == known.lake_type.element
    if known.lake_type.chosen:  # a modifier makes no difference to a chosen type
        return True
    if means_the_same_everywhere(wire.atttypid) and means_the_same_everywhere(known.atttypid):
        source_type = lake_type(wire.atttypid, wire.atttypmod)
        return source_type == known.lake_type or is_widened(source_type, known.lake_type)
    # only the facts say what such a type is in the lake, so the OIDs must be equal
    return wire.atttypid == known.atttypid
