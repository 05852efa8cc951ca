"""``on_unrepresentable: clamp``: the least or the greatest value of the lake's type in place of one beyond it."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import ROUND_HALF_UP, Context, Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.schema.lake_types import LakeKind, LakeType

# what PostgreSQL prints of values below: -infinity, years BC, and in another zone than UTC what the year 1 begins with
_BELOW = r"^-|^0001-| BC$"
_NOT_A_NUMBER = "NaN"
# a half away from zero; what is rounded lies between the ends, so it has 76 digits at most
_AS_POSTGRESQL = Context(prec=80, rounding=ROUND_HALF_UP)


def clamped(values: pa.Array, unrepresentable: np.ndarray, texts: pa.Array, lake_type: LakeType) -> pa.Array:
    """``values`` with the nearest ones in place of the ``unrepresentable``, which are null in them; ``texts``: what
    PostgreSQL prints of these alone, in order. NaN has no neighbour in a decimal, and stays null."""
    if lake_type.chosen:
        return pc.replace_with_mask(values, pa.array(unrepresentable), _nearest_decimals(texts, lake_type))
    low, high = (pa.scalar(end, lake_type.arrow) for end in _ends(lake_type))
    below = pc.match_substring_regex(texts, _BELOW)
    ends = pc.if_else(pc.equal(texts, _NOT_A_NUMBER), pa.scalar(None, lake_type.arrow), pc.if_else(below, low, high))
    return pc.replace_with_mask(values, pa.array(unrepresentable), ends)


def _nearest_decimals(texts: pa.Array, lake_type: LakeType) -> pa.Array:
    """One by one, since only values that do not fit come here, and each may have 147,000 digits."""
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
            return datetime.min.replace(tzinfo=timezone.utc), datetime.max.replace(tzinfo=timezone.utc)
        case LakeKind.DECIMAL:
            return _decimal_ends(lake_type)
    raise ValueError(f"every value has its place in {lake_type.sql}")


def _decimal_ends(lake_type: LakeType) -> tuple[Decimal, Decimal]:
    digits = (9,) * lake_type.precision
    return Decimal((1, digits, -lake_type.scale)), Decimal((0, digits, -lake_type.scale))
