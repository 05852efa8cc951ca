"""PostgreSQL's text output → exactly one lake type. Snapshots and changes both come through here.

The source session pins what the text looks like: TimeZone UTC, DateStyle ISO, extra_float_digits 3, bytea_output hex,
client_encoding UTF8. Every value is checked against what PostgreSQL's output functions can write; anything else is
malformed and raises, whatever the policy. A value PostgreSQL can hold and the lake type cannot (infinity dates, years
before 1 or beyond 9999, NaN in a decimal) is unrepresentable and follows ``on_unrepresentable``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.decode.bytea import hex_to_bytes
from spark_jobs.decode.clamp import clamped
from spark_jobs.decode.datetimes import parse_dates, parse_timestamps
from spark_jobs.decode.text_column import TextColumn, mask_where
from spark_jobs.errors import DecodeError, UnrepresentableError
from spark_jobs.schema.lake_types import LakeKind, LakeType

OnUnrepresentable = Literal["error", "null", "clamp"]

NOT_IN_DECIMAL = "NaN or Infinity has no place in a decimal"
OUT_OF_RANGE = "infinity, or a year before 1 or beyond 9999"

_SPECIAL_FLOAT = r"^(NaN|-?Infinity)$"


@dataclass(frozen=True)
class Parsed:
    """Values of the lake type, and which rows have none because the type cannot hold them (None: every row has)."""

    values: pa.Array
    unrepresentable: np.ndarray | None = None
    reason: str = ""


def cast_text(
    column: pa.Array, lake_type: LakeType, *, name: str, table: str, on_unrepresentable: OnUnrepresentable = "error"
) -> pa.Array:
    """``column``: string or binary, PostgreSQL's text output; the result is of ``lake_type.arrow``, as long, with the
    same nulls, and under ``"null"`` more; under ``"clamp"`` see ``clamped``.

    Raises DecodeError for text PostgreSQL does not write, UnrepresentableError for values the type cannot hold.
    Both name ``table`` and ``name``, never the value.
    """
    try:
        text = TextColumn.of(column)
        parsed = parse_text(text, lake_type)
    except (pa.ArrowInvalid, ValueError):
        # Arrow's message quotes the value, so it is not passed on
        raise DecodeError(
            f"{table} column {name}: not PostgreSQL's text of {lake_type.sql}",
            hint="the session that read it must pin TimeZone, DateStyle, bytea_output and client_encoding",
        ) from None
    if parsed.unrepresentable is not None and on_unrepresentable == "clamp":
        beyond = text.string().filter(pa.array(parsed.unrepresentable))
        return clamped(parsed.values, parsed.unrepresentable, beyond, lake_type)
    return settled(parsed, name=name, table=table, on_unrepresentable=on_unrepresentable)


def parse_text(text: TextColumn, lake_type: LakeType) -> Parsed:
    """Raises ArrowInvalid or ValueError for text PostgreSQL does not write; their messages may quote the value."""
    return _PARSERS[lake_type.kind](text, lake_type)


def settled(parsed: Parsed, *, name: str, table: str, on_unrepresentable: OnUnrepresentable) -> pa.Array:
    """The values, unrepresentable ones as null. Raises UnrepresentableError where the policy is ``"error"``."""
    if parsed.unrepresentable is not None and on_unrepresentable == "error":
        count = int(parsed.unrepresentable.sum())
        raise UnrepresentableError(
            f"{table} column {name}: {parsed.reason}, in {count} of {len(parsed.values)} values",
            hint='set on_unrepresentable: "null" to store null instead, or clamp for the nearest value',
        )
    return parsed.values


def _boolean(text: TextColumn, _: LakeType) -> Parsed:
    values = pc.equal(text.string(), "t")
    if not pc.all(pc.or_(values, pc.equal(text.string(), "f"))).as_py() and len(text) > text.null_count:
        raise ValueError("boolean")
    return Parsed(values)


def _integer(text: TextColumn, lake_type: LakeType) -> Parsed:
    values = text.string().cast(lake_type.arrow)
    # Arrow also takes +1, 007 and 0x7: only what prints back to the same text is PostgreSQL's
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
    # an overflow would come back as an infinity; NaN and Infinity are real values here
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
    # numeric(p, s) prints exactly s decimals; another scale would make Arrow rescale, which can overflow unnoticed
    if lake_type.scale and not (text.byte(-1 - lake_type.scale)[text.valid] == ord(".")).all():
        raise ValueError("numeric")
    if not lake_type.scale and (text.used == ord(".")).any():
        raise ValueError("numeric")
    # nor does Arrow notice every number beyond the precision: some come back as another
    negative = text.byte(0) == ord("-")
    whole = text.lengths - negative - (lake_type.scale + 1 if lake_type.scale else 0)
    room = lake_type.precision - lake_type.scale
    if (whole > max(room, 1)).any():
        raise ValueError("numeric")
    if not room and (np.where(negative, text.byte(1), text.byte(0))[text.valid] != ord("0")).any():
        raise ValueError("numeric")
    return text.string().cast(lake_type.arrow)


def _date(text: TextColumn, _: LakeType) -> Parsed:
    return _outside(*parse_dates(text))


def _timestamp(text: TextColumn, lake_type: LakeType) -> Parsed:
    return _outside(*parse_timestamps(text, with_zone=lake_type.kind is LakeKind.TIMESTAMP))


def _outside(values: pa.Array, unrepresentable: np.ndarray | None) -> Parsed:
    return Parsed(values, unrepresentable, OUT_OF_RANGE)


def _binary(text: TextColumn, _: LakeType) -> Parsed:
    return Parsed(hex_to_bytes(text))


def _string(text: TextColumn, _: LakeType) -> Parsed:
    return Parsed(text.valid_string())


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
