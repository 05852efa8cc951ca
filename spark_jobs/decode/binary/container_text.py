"""Renders binary arrays, records, ranges, multiranges and hstore as text, each with its own quoting rules.

Mirrors ``array_out``, ``record_out``, ``range_out``, ``multirange_out`` and ``hstore_out``. Only ASCII whitespace
counts as whitespace.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator

from spark_jobs.logicalrep.cursor import Cursor
from spark_jobs.schema.wire_type import WireType

ValueText = Callable[[bytes, WireType], str]

_MAX_DIMENSIONS = 6
_SPACE = " \t\n\v\f\r"
_IN_RECORD = re.compile(rf'["\\(),{_SPACE}]')
_IN_RANGE = re.compile(rf'["\\()\[\],{_SPACE}]')
_IN_ARRAY = re.compile(rf'["\\{{}}{_SPACE}]')
_EMPTY, _LOWER_INCLUSIVE, _UPPER_INCLUSIVE, _LOWER_INFINITE, _UPPER_INFINITE = 1, 2, 4, 8, 16


def array_text(cursor: Cursor, wire_type: WireType, text_of: ValueText) -> str:
    bounds, element = _array_head(cursor, wire_type)
    if not math.prod((size for size, _ in bounds), start=len(bounds)):
        return "{}"
    elements = _elements(cursor, math.prod(size for size, _ in bounds), element, text_of)
    text = _nested([size for size, _ in bounds], elements, element.delimiter)
    if all(lower == 1 for _, lower in bounds):
        return text
    return "".join(f"[{lower}:{lower + size - 1}]" for size, lower in bounds) + "=" + text


def vector_text(cursor: Cursor, wire_type: WireType, text_of: ValueText) -> str:
    """int2vector and oidvector: one dimension, numbers separated by spaces."""
    bounds, element = _array_head(cursor, wire_type)
    size = math.prod(size for size, _ in bounds) if bounds else 0
    return " ".join(text_of(_present(_value(cursor)), element) for _ in range(size))


def _array_head(cursor: Cursor, wire_type: WireType) -> tuple[list[tuple[int, int]], WireType]:
    """(size, lower bound) of each dimension, and the type of the elements."""
    dimensions = cursor.int32("dimensions")
    cursor.int32("flags")  # whether there are nulls
    element = wire_type.part(cursor.uint32("element type"))
    if not 0 <= dimensions <= _MAX_DIMENSIONS:
        raise ValueError("array")
    bounds = [(cursor.int32("size"), cursor.int32("lower bound")) for _ in range(dimensions)]
    if any(size < 0 for size, _ in bounds) or (bounds and math.prod(size for size, _ in bounds) * 4 > cursor.left):
        raise ValueError("array")
    return bounds, element


def _elements(cursor: Cursor, count: int, element: WireType, text_of: ValueText) -> Iterator[str]:
    for _ in range(count):
        data = _value(cursor)
        if data is None:
            yield "NULL"
            continue
        text = text_of(data, element)
        if not text or text.upper() == "NULL" or element.delimiter in text or _IN_ARRAY.search(text):
            text = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
        yield text


def _nested(sizes: list[int], elements: Iterator[str], delimiter: str) -> str:
    inner = (
        (next(elements) for _ in range(sizes[0]))
        if len(sizes) == 1
        else (_nested(sizes[1:], elements, delimiter) for _ in range(sizes[0]))
    )
    return "{" + delimiter.join(inner) + "}"


def record_text(cursor: Cursor, wire_type: WireType, text_of: ValueText) -> str:
    """A record names the type of each column, so records from before an ALTER TYPE are read correctly too."""
    texts = []
    columns = cursor.int32("number of columns")
    if columns < 0 or columns * 8 > cursor.left:
        raise ValueError("record")
    for _ in range(columns):
        part = cursor.uint32("column type")
        data = _value(cursor)
        text = None if data is None else text_of(data, wire_type.part(part))
        texts.append("" if text is None else _doubled(text) if not text or _IN_RECORD.search(text) else text)
    return "(" + ",".join(texts) + ")"


def range_text(cursor: Cursor, wire_type: WireType, text_of: ValueText) -> str:
    flags = cursor.flags(_EMPTY | _LOWER_INCLUSIVE | _UPPER_INCLUSIVE | _LOWER_INFINITE | _UPPER_INFINITE, "range")
    if flags & _EMPTY:
        return "empty"
    subtype = wire_type.parts[0]
    lower = "" if flags & _LOWER_INFINITE else _bound(cursor, subtype, text_of)
    upper = "" if flags & _UPPER_INFINITE else _bound(cursor, subtype, text_of)
    opening, closing = "[" if flags & _LOWER_INCLUSIVE else "(", "]" if flags & _UPPER_INCLUSIVE else ")"
    return f"{opening}{lower},{upper}{closing}"


def _bound(cursor: Cursor, subtype: WireType, text_of: ValueText) -> str:
    text = text_of(cursor.counted("bound"), subtype)
    return _doubled(text) if not text or _IN_RANGE.search(text) else text


def multirange_text(cursor: Cursor, wire_type: WireType, text_of: ValueText) -> str:
    size = cursor.int32("number of ranges")
    if size < 0 or size * 5 > cursor.left:
        raise ValueError("multirange")
    return "{" + ",".join(text_of(cursor.counted("range"), wire_type.parts[0]) for _ in range(size)) + "}"


def hstore_text(cursor: Cursor, _: WireType, __: ValueText) -> str:
    size = cursor.int32("number of pairs")
    if size < 0 or size * 8 > cursor.left:
        raise ValueError("hstore")
    pairs = []
    for _pair in range(size):
        key, value = cursor.counted("key").decode(), _value(cursor)
        pairs.append(f"{_escaped(key)}=>{'NULL' if value is None else _escaped(value.decode())}")
    return ", ".join(pairs)


def _value(cursor: Cursor) -> bytes | None:
    size = cursor.int32("length")
    return None if size == -1 else cursor.take(size, "value")


def _present(data: bytes | None) -> bytes:
    if data is None:
        raise ValueError("null")
    return data


def _doubled(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '""') + '"'


def _escaped(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
