"""When two values are equal: where PostgreSQL prints them alike. To Spark 0 is -0, in print it is not; and a hash of
Spark's takes no notice of a null in an array.

Compare what comes from here with ``eqNullSafe``, in SQL ``<=>``. NaN is NaN to both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_jobs.schema.lake_types import LakeKind, LakeType
from spark_jobs.schema.table_shape import LakeColumn

if TYPE_CHECKING:
    from pyspark.sql import Column

_FLOATS = (LakeKind.FLOAT, LakeKind.DOUBLE)


def printed(value: Column, column: LakeColumn) -> Column:
    """Something that differs where PostgreSQL prints ``value`` in another way."""
    return _printed(value, column.lake_type)


def _printed(value: Column, lake_type: LakeType) -> Column:
    from pyspark.sql import functions as fn

    element = lake_type.element
    if element is not None:
        return fn.transform(value, lambda each: fn.struct(each.isNull(), _printed(each, element)))
    if lake_type.kind is LakeKind.VARIANT:  # Spark neither compares nor hashes them; keys stand in one order in each
        return fn.to_json(value)
    return value.cast("string") if lake_type.kind in _FLOATS else value


def printed_sql(value: str, column: LakeColumn) -> str:
    """The same in SQL."""
    return f"CAST({value} AS STRING)" if column.lake_type.kind in _FLOATS else value
