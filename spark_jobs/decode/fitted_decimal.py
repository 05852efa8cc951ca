"""Turns ``numeric`` into the decimal type that the configuration chose: a value fits exactly, or is unrepresentable."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.decode.gather import gather
from spark_jobs.decode.text_column import TextColumn, mask_where
from spark_jobs.schema.lake_types import LakeType

# what numeric_out writes
_NUMBER = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?$"
_SPECIAL = r"^(NaN|-?Infinity)$"


def fitted_decimals(text: TextColumn, lake_type: LakeType) -> tuple[pa.Array, np.ndarray]:
    """The values that fit, and a mask of those that do not, which are null in the first.

    A value fits when it has at most ``precision - scale`` digits before the decimal point and at most ``scale`` after
    it, not counting trailing zeros. NaN and infinity do not fit. Raises ValueError for text ``numeric_out`` does not
    write.
    """
    string = text.string()
    is_number = mask_where(pc.match_substring_regex(string, _NUMBER))
    if (text.valid & ~is_number & ~mask_where(pc.match_substring_regex(string, _SPECIAL))).any():
        raise ValueError("numeric")
    lengths, point = text.lengths, _numbers(pc.find_substring(string, "."))
    has_point = point >= 0
    trimmed = _numbers(pc.binary_length(pc.ascii_rtrim(string, "0")))
    fraction = np.where(has_point, trimmed - point - 1, 0)
    is_negative = text.byte(0) == ord("-")
    begins_with_zero = np.where(is_negative, text.byte(1), text.byte(0)) == ord("0")
    whole = np.where(has_point, point, lengths) - is_negative - begins_with_zero
    fits = is_number & (fraction <= lake_type.scale) & (whole <= lake_type.precision - lake_type.scale)
    sizes = np.where(has_point, np.where(fraction > 0, trimmed, point), lengths)
    texts = gather(text.data, text.offsets[:-1].astype(np.int64), sizes.astype(np.int64), fits)
    return texts.combine_chunks().view(pa.string()).cast(lake_type.arrow), text.valid & ~fits


def _numbers(column: pa.Array) -> np.ndarray:
    return np.asarray(column.fill_null(0).to_numpy(zero_copy_only=False), dtype=np.int64)
