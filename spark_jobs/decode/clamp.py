"""``on_unrepresentable: clamp``: the nearest value of the lake's type in place of one that it cannot hold."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Context, Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.schema.lake_types import LakeKind, LakeType

# how the text of values below the range begins or ends: -infinity, years BC, and timestamps of the year 1 that another
# time zone's offset moves before it
_BELOW = r"^-|^0001-| BC$"
_NOT_A_NUMBER = "NaN"
# rounds half away from zero, as PostgreSQL does. Only values within the type's range are rounded: at most 76 digits
_AS_POSTGRESQL = Context(prec=80, rounding=ROUND_HALF_UP)


def clamped(values: pa.Array, unrepresentable: np.ndarray, texts: pa.Array, lake_type: LakeType) -> pa.Array:
    """``values`` with the nearest value in each ``unrepresentable`` row, which is null in ``values``. ``texts``: what
    PostgreSQL prints for these rows alone, in order. NaN has no nearest decimal and stays null."""
    if lake_type.chosen:
        return pc.replace_with_mask(values, pa.array(unrepresentable), _nearest_decimals(texts, lake_type))
    low, high = (pa.scalar(end, lake_type.arrow) for end in _ends(lake_type))
    below = pc.match_substring_regex(texts, _BELOW)
    ends = pc.if_else(pc.equal(texts, _NOT_A_NUMBER), pa.scalar(None, lake_type.arrow), pc.if_else(below, low, high))
    return pc.replace_with_mask(values, pa.array(unrepresentable), ends)


def _nearest_decimals(texts: pa.Array, lake_type: LakeType) -> pa.Array:
    """Row by row, as it gets only values that do not fit, and each may have 147,000 digits."""
    low, high = _decimal_ends(lake_type)
    unit = Decimal((0, (1,), -lake_type.scale))

    def rounded(text: str) -> Decimal | None:
        value = Decimal(text)
        if value.is_nan():
            return None
        if not low <= value <= high:
            return low if value < low else high
        return value.quantize(unit, context=_AS_POSTGRESQL)

    return pa.array([rounded(text) for text in texts.to_pylist()], lake_type.arrow)


def _ends(lake_type: LakeType) -> tuple[object, object]:
    match lake_type.kind:
        case LakeKind.DATE:
            return date.min, date.max
        case LakeKind.TIMESTAMP_NTZ:
            return datetime.min, datetime.max
        case LakeKind.TIMESTAMP:
            return datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
        case LakeKind.DECIMAL:
            return _decimal_ends(lake_type)
    raise ValueError(f"{lake_type.sql} can hold every value")


def _decimal_ends(lake_type: LakeType) -> tuple[Decimal, Decimal]:
    digits = (9,) * lake_type.precision
    return Decimal((1, digits, -lake_type.scale)), Decimal((0, digits, -lake_type.scale))
