"""When two values are equal: where PostgreSQL prints them alike. To Spark 0 is -0, in print it is not.

Compare what comes from here with ``eqNullSafe``, in SQL ``<=>``. NaN is NaN to both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_jobs.schema.lake_types import LakeKind
from spark_jobs.schema.table_shape import LakeColumn

if TYPE_CHECKING:
    from pyspark.sql import Column

_FLOATS = (LakeKind.FLOAT, LakeKind.DOUBLE)


def printed(value: Column, column: LakeColumn) -> Column:
    """Something that differs where PostgreSQL prints ``value`` in another way."""
    return value.cast("string") if column.lake_type.kind in _FLOATS else value


def printed_sql(value: str, column: LakeColumn) -> str:
    """The same in SQL."""
    return f"CAST({value} AS STRING)" if column.lake_type.kind in _FLOATS else value
