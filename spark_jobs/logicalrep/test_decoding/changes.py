"""Turns a row line of ``test_decoding`` into the change that pgoutput would have sent.

The Relation message is made from the catalogue when the line is captured, so the line is at least as old. A column that
only the relation has was therefore added or renamed later, and the line is refused. A column that only the line has is
generated, or was dropped later; it is left out, as pgoutput would.
"""

from __future__ import annotations

from spark_jobs.logicalrep.errors import RelationMismatchError
from spark_jobs.logicalrep.messages import (
    UNCHANGED_TOAST,
    Change,
    ColumnValue,
    Delete,
    Insert,
    TupleData,
    Update,
)
from spark_jobs.logicalrep.relation import Relation, RelationColumn
from spark_jobs.logicalrep.test_decoding.lines import Form, NamedValue, Row, RowLine, TruncateLine
from spark_jobs.logicalrep.test_decoding.read_line import read_line

# the types that print_literal does not quote, by OID; it quotes all others, including domains over these
NUMBER_TYPES = {
    20: "bigint",
    21: "smallint",
    23: "integer",
    26: "oid",
    700: "real",
    701: "double precision",
    1700: "numeric",
}
BIT_TYPES = {1560: "bit", 1562: "bit varying"}
BOOLEAN_TYPES = {16: "boolean"}
_NAMES = {**NUMBER_TYPES, **BIT_TYPES, **BOOLEAN_TYPES}
_UNQUOTED_NAMES = frozenset(_NAMES.values())
IDENTITY_FULL = "f"


class TableAlteredError(RelationMismatchError):
    """The line's columns or old row are not what the catalogue made expect when the line was captured."""


def read_row(data: bytes, relation: Relation) -> Change:
    """Read a row line as the Insert, Update or Delete of ``relation``.

    Raises LogicalRepError: TableAlteredError when the line's columns or old row are not the relation's,
    RelationMismatchError when the line is no row change.
    """
    line = read_line(data)
    if not isinstance(line, RowLine):
        raise RelationMismatchError(f"{type(line).__name__} is no row change")
    return row_change(line, relation)


def row_change(line: RowLine, relation: Relation) -> Change:
    """As ``read_row``, for a line that ``read_line`` has returned."""
    if not line.has_tuple_data:
        raise TableAlteredError("the line has no row: the table had no replica identity when it was written")
    old = None if line.old is None else _old(line.old, relation)
    if line.kind == "D":
        return Delete(relation.relid, *_key_or_tuple(old, relation))
    new = _new(line.new or (), relation)
    if line.kind == "I":
        return Insert(relation.relid, new)
    if old is not None and relation.relreplident == IDENTITY_FULL:
        _require_kept_values(old, new)
    return Update(relation.relid, *_key_or_tuple(old, relation), new)


def read_truncate(data: bytes) -> TruncateLine:
    """Read a TRUNCATE line. Raises LogicalRepError; RelationMismatchError when the line is no TRUNCATE."""
    line = read_line(data)
    if not isinstance(line, TruncateLine):
        raise RelationMismatchError(f"{type(line).__name__} is no TRUNCATE")
    return line


def _key_or_tuple(old: TupleData | None, relation: Relation) -> tuple[TupleData | None, TupleData | None]:
    return (None, old) if relation.relreplident == IDENTITY_FULL else (old, None)


def _new(row: Row, relation: Relation) -> TupleData:
    values = _by_name(row, relation)
    missing = [column.name for column in relation.columns if column.name not in values]
    if missing:
        raise TableAlteredError(f"{len(missing)} of the relation's {len(relation.columns)} columns are not there")
    return tuple(_value(values[column.name]) for column in relation.columns)


def _old(row: Row, relation: Relation) -> TupleData:
    """Old rows leave out nulls. Unless the replica identity is FULL, only key columns count; they are never null."""
    values = _by_name(row, relation)
    full = relation.relreplident == IDENTITY_FULL
    if not full and not all(column.name in values for column in relation.columns if column.key):
        raise TableAlteredError("the old row lacks a column of the replica identity")
    return tuple(
        _value(values[column.name]) if (full or column.key) and column.name in values else None
        for column in relation.columns
    )


def _by_name(row: Row, relation: Relation) -> dict[str, NamedValue]:
    """The row's columns that the relation has, checked to be unique and printed as their types are. By name, because a
    partition may have its own column order."""
    columns = {column.name: column for column in relation.columns}
    known = [value for value in row if value.name in columns]
    for value in known:
        _require_form(value, columns[value.name])
    by_name = {value.name: value for value in known}
    if len(by_name) != len(known):
        raise RelationMismatchError("a column appears twice")
    return by_name


def _require_form(value: NamedValue, column: RelationColumn) -> None:
    name = _NAMES.get(column.atttypid)
    if value.type_name != name if name else value.type_name in _UNQUOTED_NAMES:
        raise TableAlteredError(f"column {column.name} has another type than type {column.atttypid}")
    if value.form not in (Form.NULL, Form.UNCHANGED_TOAST, _form(column.atttypid)):
        raise RelationMismatchError(f"column {column.name} is not printed as its type is")


def _form(atttypid: int) -> Form:
    if atttypid in NUMBER_TYPES:
        return Form.NUMBER
    if atttypid in BIT_TYPES:
        return Form.BITS
    return Form.BOOLEAN if atttypid in BOOLEAN_TYPES else Form.QUOTED


def _value(value: NamedValue) -> ColumnValue:
    if value.form is Form.NULL:
        return None
    return UNCHANGED_TOAST if value.form is Form.UNCHANGED_TOAST else value.text


def _require_kept_values(old: TupleData, new: TupleData) -> None:
    """Under FULL the old row holds every non-null value. If it lacks one that the new row calls unchanged, which is
    never null, the replica identity became FULL only later."""
    if any(after is UNCHANGED_TOAST and before is None for before, after in zip(old, new, strict=True)):
        raise TableAlteredError("the old row lacks an unchanged value: the replica identity was not FULL yet")
