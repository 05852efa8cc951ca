"""What the lines of one table have in common: the table's name, and before each value its column's name and type.

Templates are learnt from lines that ``logicalrep`` has read. Old rows leave out nulls, so learning all columns may take
several lines.
"""

from __future__ import annotations

from dataclasses import dataclass

from spark_jobs.logicalrep.relation import Relation
from spark_jobs.logicalrep.test_decoding.changes import BIT_TYPES, BOOLEAN_TYPES, NUMBER_TYPES
from spark_jobs.logicalrep.test_decoding.lines import Form, NamedValue, RowLine
from spark_jobs.logicalrep.test_decoding.read_line import read_line, read_table_header

_FORMS = {
    **dict.fromkeys(NUMBER_TYPES.values(), Form.NUMBER),
    **dict.fromkeys(BIT_TYPES.values(), Form.BITS),
    **dict.fromkeys(BOOLEAN_TYPES.values(), Form.BOOLEAN),
}


@dataclass(frozen=True)
class TemplateColumn:
    """``literal`` stands before the value; ``index`` is the column's place in the relation, -1 where it has none.

    A column that the relation lacks comes after the relation's column ``after``, as far as the lines so far show.
    """

    name: str
    type_name: str
    literal: bytes
    form: Form
    index: int
    after: int

    @property
    def order(self) -> tuple[int, bool]:
        return (self.after, self.index < 0)


@dataclass(frozen=True)
class LineTemplate:
    """``header`` is the line up to and including the colon after the table's name; ``columns`` are in line order."""

    header: bytes
    columns: tuple[TemplateColumn, ...]

    def merged(self, other: LineTemplate) -> LineTemplate | None:
        """This template with the other's columns added; None if the two cannot be of one table version."""
        if self.header != other.header:
            return None
        known = {column.name: column for column in self.columns}
        types = {column.name: column.type_name for column in other.columns}
        if any(types.get(name, column.type_name) != column.type_name for name, column in known.items()):
            return None
        # a new row has all columns in the table's order, which for a partition may differ from the relation's
        if types.keys() <= known.keys():
            return self
        if known.keys() <= types.keys():
            return other
        for column in other.columns:
            mine = known.get(column.name)
            if mine is None or mine.after < column.after:
                known[column.name] = column
        return LineTemplate(self.header, tuple(sorted(known.values(), key=lambda column: column.order)))


def template_of(data: bytes, relation: Relation) -> LineTemplate:
    """The template of one row line, which must be valid. The literals are the line's own bytes."""
    line = read_line(data)
    if not isinstance(line, RowLine):
        raise TypeError(f"{type(line).__name__} is not a row line")
    _, size = read_table_header(data)
    places = {column.name: index for index, column in enumerate(relation.columns)}
    columns, after = [], -1
    for value in line.new if line.new is not None else line.old or ():
        index = places.get(value.name, -1)
        after = max(after, index)
        columns.append(_column(data, value, index, after))
    return LineTemplate(data[:size], tuple(columns))


def _column(line: bytes, value: NamedValue, index: int, after: int) -> TemplateColumn:
    # which names are quoted depends on the server's reserved words, so look in the line
    bare = f" {value.name}[{value.type_name}]:".encode()
    quoted_name = value.name.replace('"', '""')
    quoted = f' "{quoted_name}"[{value.type_name}]:'.encode()
    form = _FORMS.get(value.type_name, Form.QUOTED)
    return TemplateColumn(value.name, value.type_name, quoted if quoted in line else bare, form, index, after)
