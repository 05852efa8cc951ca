"""``on_unrepresentable: clamp``: the least or the greatest value of the lake's type in place of one beyond it."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.schema.lake_types import LakeKind, LakeType

# what PostgreSQL prints of values below: -infinity, years BC, and in another zone than UTC what the year 1 begins with
_BELOW = r"^-|^0001-| BC$"
_NOT_A_NUMBER = "NaN"


def clamped(values: pa.Array, unrepresentable: np.ndarray, texts: pa.Array, lake_type: LakeType) -> pa.Array:
    """``values`` with the nearest ones in place of the ``unrepresentable``, which are null in them; ``texts``: what
    PostgreSQL prints of these alone, in order. NaN has no neighbour in a decimal, and stays null."""
    low, high = (pa.scalar(end, lake_type.arrow) for end in _ends(lake_type))
    below = pc.match_substring_regex(texts, _BELOW)
    ends = pc.if_else(pc.equal(texts, _NOT_A_NUMBER), pa.scalar(None, lake_type.arrow), pc.if_else(below, low, high))
    return pc.replace_with_mask(values, pa.array(unrepresentable), ends)


def _ends(lake_type: LakeType) -> tuple[object, object]:
    match lake_type.kind:
        case LakeKind.DATE:
            return date.min, date.max
        case LakeKind.TIMESTAMP_NTZ:
            return datetime.min, datetime.max
        case LakeKind.TIMESTAMP:
            return datetime.min.replace(tzinfo=timezone.utc), datetime.max.replace(tzinfo=timezone.utc)
        case LakeKind.DECIMAL:
            most = Decimal((0, (9,) * lake_type.precision, -lake_type.scale))
            return -most, most
    raise ValueError(f"every value has its place in {lake_type.sql}")
