"""Casts PostgreSQL's text output to one lake type. Snapshots and changes both use it.

The source session pins the form of the text: TimeZone UTC, DateStyle ISO, extra_float_digits 3, bytea_output hex,
client_encoding UTF8. Every value is checked against what PostgreSQL's output functions can write; anything else is
malformed and raises an error, whatever the policy. A value that PostgreSQL can hold and the lake type cannot (infinity
dates, years before 1 or beyond 9999, NaN in a decimal) is unrepresentable: ``on_unrepresentable`` decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.decode.array_text import array_elements
from spark_jobs.decode.clamp import clamped
from spark_jobs.decode.datetimes import parse_dates, parse_timestamps
from spark_jobs.decode.fitted_decimal import fitted_decimals
from spark_jobs.decode.hexadecimal import hex_to_bytes, uuid_to_bytes
from spark_jobs.decode.json_numbers import with_other_numbers
from spark_jobs.decode.text_column import TextColumn, mask_where
from spark_jobs.errors import DecodeError, UnrepresentableError, corrected_value
from spark_jobs.options.column_options import OnUnrepresentable as OnUnrepresentable
from spark_jobs.schema.lake_types import LakeKind, LakeType
from spark_jobs.schema.relation_facts import NOT_UTF_8
from spark_jobs.schema.table_shape import LakeColumn, TableShape
from spark_jobs.schema.wire_type import Family, WireType

NOT_IN_DECIMAL = "NaN or Infinity has no place in a decimal"
OUT_OF_RANGE = "infinity, or a year before 1 or beyond 9999"
NOT_IN_PARTITION = "Delta has no empty text as the value of a partition"
NOT_IN_VARIANT = "a number with an exponent, or of more than 38 digits"
# of what is noted of a value that does not fit; a longer text ends with …
MOST_CHARACTERS = 1_000

OTHER_SHAPE = "more dimensions than one, or a lower bound other than 1"

_SPECIAL_FLOAT = r"^(NaN|-?Infinity)$"


@dataclass(frozen=True)
class Fitted:
    """Values of the lake type. ``misfits``: PostgreSQL's text of the values that the type cannot hold, in whose place
    there are others; null in all other rows. It is cut off after ``MOST_CHARACTERS``. None: all values fit."""

    values: pa.Array | pa.ChunkedArray
    misfits: pa.Array | pa.ChunkedArray | None = None

    @classmethod
    def joined(cls, parts: Sequence[Fitted], to: pa.DataType) -> Fitted:
        """The values of all parts, one after the other, as ``to``."""
        values = pa.chunked_array([chunk for each in parts for chunk in _chunks(each.values)], type=to)
        if all(each.misfits is None for each in parts):
            return cls(values)
        texts = (pa.nulls(len(each.values), pa.string()) if each.misfits is None else each.misfits for each in parts)
        return cls(values, pa.chunked_array([chunk for each in texts for chunk in _chunks(each)], type=pa.string()))


def _chunks(values: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    return values.chunks if isinstance(values, pa.ChunkedArray) else [values]


@dataclass(frozen=True)
class Parsed:
    """Values of the lake type, and a mask of the rows that are null because the type cannot hold their value (None: no
    such row). ``reason`` says why it cannot."""

    values: pa.Array
    unrepresentable: np.ndarray | None = None
    reason: str = ""


def cast_text(
    column: pa.Array,
    lake_type: LakeType,
    wire_type: WireType | None = None,
    *,
    name: str,
    table: str,
    on_unrepresentable: OnUnrepresentable = "error",
) -> Fitted:
    """Cast ``column``, PostgreSQL's text output as strings or binary, to ``lake_type.arrow``. ``wire_type``: of what a
    server has printed; None for text that is the same in every version.

    Nulls stay nulls. Unrepresentable values become null under ``"null"``; under ``"clamp"`` see ``clamped``. Raises
    DecodeError for text PostgreSQL does not write, and under ``"error"`` UnrepresentableError for unrepresentable
    values. Both name ``table`` and ``name``, never the value.
    """
    text = TextColumn.of(column if wire_type is None else as_printed_since_15(column, wire_type))
    try:
        parsed = parse_text(text, lake_type)
    except (pa.ArrowInvalid, ValueError):
        # from None: Arrow's message quotes the value
        if not text.is_utf_8:
            raise DecodeError(
                f"{table} column {name}: a text is not UTF-8, as may be in an SQL_ASCII database, or where PostgreSQL"
                ' 14 prints a "char" above 127 in an array or a row',
                hint=corrected_value(table),
            ) from None
        raise DecodeError(
            f"{table} column {name}: not PostgreSQL's text of {lake_type.sql}",
            hint="the session that read it must pin TimeZone, DateStyle, bytea_output and client_encoding",
        ) from None
    return settled(parsed, text.where, lake_type, name=name, table=table, on_unrepresentable=on_unrepresentable)


def missing_value(column: LakeColumn, shape: TableShape) -> Fitted:
    """The value of rows that are older than the column, cast as changes are. Raises UnrepresentableError."""
    assert column.missing is not None
    text = pa.array([column.missing.encode(errors=NOT_UTF_8)], pa.binary())
    return cast_text(
        text,
        column.lake_type,
        column.binary_type,
        name=column.name,
        table=str(shape.name),
        on_unrepresentable=column.on_unrepresentable,
    )


def parse_text(text: TextColumn, lake_type: LakeType) -> Parsed:
    """Raises ArrowInvalid or ValueError for text PostgreSQL does not write; the message may quote the value."""
    parsers = _CHOSEN if lake_type.chosen else _PARSERS
    return parsers[lake_type.kind](text, lake_type)


def _nearest(parsed: Parsed, beyond: TextColumn, lake_type: LakeType) -> pa.Array:
    """The values, with the nearest representable one in place of each unrepresentable one (see ``clamped``).

    ``beyond``: what PostgreSQL prints for the unrepresentable ones alone, in order. In an array, each element is
    clamped on its own.
    """
    lost = parsed.unrepresentable
    assert lost is not None
    if lake_type.kind in (LakeKind.VARIANT, LakeKind.STRING):  # there is no nearest document, and no nearest text
        return parsed.values
    if lake_type.element is None:
        return clamped(parsed.values, lost, beyond.string(), lake_type)
    split = array_elements(beyond)
    elements = parse_text(split.texts, lake_type.element)
    values = elements.values
    if elements.unrepresentable is not None:
        texts = split.texts.string().filter(pa.array(elements.unrepresentable))
        values = clamped(values, elements.unrepresentable, texts, lake_type.element)
    places = np.where(lost, len(parsed.values) + np.cumsum(lost) - 1, np.arange(len(lost)))
    return pa.concat_arrays([parsed.values, split.lists(values)]).take(pa.array(places))


def settled(
    parsed: Parsed,
    text_of: Callable[[np.ndarray], TextColumn],
    lake_type: LakeType,
    *,
    name: str,
    table: str,
    on_unrepresentable: OnUnrepresentable,
) -> Fitted:
    """The values, with what the policy stores in place of unrepresentable ones. ``text_of``: what PostgreSQL prints for
    these rows alone, in order. Raises UnrepresentableError if the policy is ``"error"``."""
    lost = parsed.unrepresentable
    if lost is None or not lost.any():
        return Fitted(parsed.values)
    if on_unrepresentable == "error":
        raise UnrepresentableError(
            f"{table} column {name}: {parsed.reason}, in {int(lost.sum())} of {len(parsed.values)} values",
            hint='set on_unrepresentable: "null" to store null instead, or clamp for the nearest value; in a key column'
            f" neither applies: {corrected_value(table)}",
        )
    beyond = text_of(lost)
    values = _nearest(parsed, beyond, lake_type) if on_unrepresentable == "clamp" else parsed.values
    nothing = pa.nulls(len(lost), pa.string())
    return Fitted(values, pc.replace_with_mask(nothing, pa.array(lost), _cut(beyond.valid_string())))


def _cut(texts: pa.Array) -> pa.Array:
    """A text may have a gigabyte, and what is noted of it is held in memory."""
    cut = pc.binary_join_element_wise(pc.utf8_slice_codeunits(texts, 0, MOST_CHARACTERS), "…", "")
    return pc.if_else(pc.greater(pc.utf8_length(texts), MOST_CHARACTERS), cut, texts)


def _boolean(text: TextColumn, _: LakeType) -> Parsed:
    values = pc.equal(text.string(), "t")
    if not pc.all(pc.or_(values, pc.equal(text.string(), "f"))).as_py() and len(text) > text.null_count:
        raise ValueError("boolean")
    return Parsed(values)


def _integer(text: TextColumn, lake_type: LakeType) -> Parsed:
    values = text.string().cast(lake_type.arrow)
    # Arrow also accepts +1, 007 and 0x7; PostgreSQL's text is the one that the value prints back to
    if not values.cast(pa.string()).equals(text.string()):
        raise ValueError("integer")
    return Parsed(values)


def _floating(text: TextColumn, lake_type: LakeType) -> Parsed:
    values = text.string().cast(lake_type.arrow)
    special = np.zeros(len(text), dtype=bool)
    if not text.only(b"0123456789.-+e"):
        special = mask_where(pc.match_substring_regex(text.string(), _SPECIAL_FLOAT))
        rest = text.string().filter(pa.array(~special))
        if not TextColumn.of(rest).only(b"0123456789.-+e"):
            raise ValueError("float")
    # Arrow turns an overflow into infinity, which PostgreSQL's text would have spelled out
    if (~np.isfinite(values.fill_null(0).to_numpy(zero_copy_only=False)) & ~special).any():
        raise ValueError("float")
    return Parsed(values)


def _decimal(text: TextColumn, lake_type: LakeType) -> Parsed:
    if text.only(b"0123456789.-"):
        return Parsed(_exact_decimal(text, lake_type))
    special = mask_where(pc.match_substring_regex(text.string(), _SPECIAL_FLOAT))
    rest = text.without(special)
    if not rest.only(b"0123456789.-"):
        raise ValueError("numeric")
    return Parsed(_exact_decimal(rest, lake_type), special, NOT_IN_DECIMAL)


def _exact_decimal(text: TextColumn, lake_type: LakeType) -> pa.Array:
    # numeric(p, s) prints exactly s decimals. With another scale Arrow would rescale, and that can overflow silently
    if lake_type.scale and not (text.byte(-1 - lake_type.scale)[text.valid] == ord(".")).all():
        raise ValueError("numeric")
    if not lake_type.scale and (text.used == ord(".")).any():
        raise ValueError("numeric")
    # Arrow does not notice every number beyond the precision either: some come back as another number
    negative = text.byte(0) == ord("-")
    whole = text.lengths - negative - (lake_type.scale + 1 if lake_type.scale else 0)
    room = lake_type.precision - lake_type.scale
    if (whole > max(room, 1)).any():
        raise ValueError("numeric")
    if not room and (np.where(negative, text.byte(1), text.byte(0))[text.valid] != ord("0")).any():
        raise ValueError("numeric")
    return text.string().cast(lake_type.arrow)


def _fitted_decimal(text: TextColumn, lake_type: LakeType) -> Parsed:
    values, lost = fitted_decimals(text, lake_type)
    return (
        Parsed(values, lost, f"NaN, infinity, or more digits than {lake_type.sql} has")
        if lost.any()
        else Parsed(values)
    )


def _array(text: TextColumn, lake_type: LakeType) -> Parsed:
    assert lake_type.element is not None
    split = array_elements(text)
    elements = parse_text(split.texts, lake_type.element)
    lost, reasons = split.other_shape, [OTHER_SHAPE] if split.other_shape.any() else []
    if elements.unrepresentable is not None and elements.unrepresentable.any():
        lost, reasons = lost | split.rows_of(elements.unrepresentable), [*reasons, elements.reason]
    values = split.lists(elements.values)
    return Parsed(values, lost, "; ".join(reasons)) if reasons else Parsed(values)


def _date(text: TextColumn, _: LakeType) -> Parsed:
    return _outside(*parse_dates(text))


def _timestamp(text: TextColumn, lake_type: LakeType) -> Parsed:
    return _outside(*parse_timestamps(text, with_zone=lake_type.kind is LakeKind.TIMESTAMP))


def _outside(values: pa.Array, unrepresentable: np.ndarray | None) -> Parsed:
    return Parsed(values, unrepresentable, OUT_OF_RANGE)


def _binary(text: TextColumn, _: LakeType) -> Parsed:
    return Parsed(hex_to_bytes(text))


def _variant(text: TextColumn, _: LakeType) -> Parsed:
    lost = with_other_numbers(text)
    if not lost.any():
        return Parsed(text.valid_string())
    return Parsed(text.without(lost).valid_string(), lost, NOT_IN_VARIANT)


def _uuid(text: TextColumn, _: LakeType) -> Parsed:
    return Parsed(uuid_to_bytes(text))


def _string(text: TextColumn, lake_type: LakeType) -> Parsed:
    if not lake_type.has_no_empty_text:
        return Parsed(text.valid_string())
    empty = text.valid & (text.lengths == 0)
    return Parsed(text.without(empty).valid_string(), empty, NOT_IN_PARTITION)


_PARSERS: dict[LakeKind, Callable[[TextColumn, LakeType], Parsed]] = {
    LakeKind.BOOLEAN: _boolean,
    LakeKind.SMALLINT: _integer,
    LakeKind.INT: _integer,
    LakeKind.BIGINT: _integer,
    LakeKind.FLOAT: _floating,
    LakeKind.DOUBLE: _floating,
    LakeKind.DECIMAL: _decimal,
    LakeKind.DATE: _date,
    LakeKind.TIMESTAMP_NTZ: _timestamp,
    LakeKind.TIMESTAMP: _timestamp,
    LakeKind.BINARY: _binary,
    LakeKind.STRING: _string,
}
# used instead of _PARSERS where the configuration chose the type
_CHOSEN: dict[LakeKind, Callable[[TextColumn, LakeType], Parsed]] = {
    LakeKind.DECIMAL: _fitted_decimal,
    LakeKind.ARRAY: _array,
    LakeKind.BINARY: _uuid,
    LakeKind.VARIANT: _variant,
}


def as_printed_since_15(column: pa.Array, wire_type: WireType) -> pa.Array:
    r"""PostgreSQL's text of a column of this type, with ``\ooo`` for a ``"char"`` above 127.

    PostgreSQL 14 prints that byte alone, which is no UTF-8. In a database with an encoding of one byte per character,
    the server has made a character of it before, which remains.
    """
    if wire_type.family is not Family.CHAR:
        return column
    encoded = column.cast(pa.binary()).dictionary_encode()
    texts = [_escaped(text) for text in encoded.dictionary.to_pylist()]
    return pc.take(pa.array(texts, pa.binary()), encoded.indices)


def _escaped(text: bytes) -> bytes:
    return b"\\%03o" % text[0] if len(text) == 1 and text[0] > 127 else text
