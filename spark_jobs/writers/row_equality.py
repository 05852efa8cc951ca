"""Two values are equal if PostgreSQL prints them alike.

Spark's own comparison differs: to Spark 0 equals -0, and its hashes ignore nulls in arrays. NaN equals NaN to both.
Compare what these functions return with ``eqNullSafe``, in SQL ``<=>``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_jobs.schema.lake_types import LakeKind, LakeType
from spark_jobs.schema.table_shape import LakeColumn

if TYPE_CHECKING:
    from pyspark.sql import Column

_FLOATS = (LakeKind.FLOAT, LakeKind.DOUBLE)


def printed(value: Column, column: LakeColumn) -> Column:
    """An expression that is equal for two values if, and only if, PostgreSQL prints them alike."""
    return _printed(value, column.lake_type)


def _printed(value: Column, lake_type: LakeType) -> Column:
    from pyspark.sql import functions as fn

    element = lake_type.element
    if element is not None:
        return fn.transform(value, lambda each: fn.struct(each.isNull(), _printed(each, element)))
    if lake_type.kind is LakeKind.VARIANT:  # Spark neither compares nor hashes variants; their keys are always sorted
        return fn.to_json(value)
    return value.cast("string") if lake_type.kind in _FLOATS else value


def printed_sql(value: str, column: LakeColumn) -> str:
    """``printed`` in SQL."""
    return f"CAST({value} AS STRING)" if column.lake_type.kind in _FLOATS else value
