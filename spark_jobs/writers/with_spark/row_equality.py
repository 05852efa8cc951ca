"""Two values are equal if PostgreSQL prints them alike.

Spark's own comparison differs: to Spark 0 equals -0, and its hashes ignore nulls in arrays. NaN equals NaN to both.
Compare what these functions return with ``eqNullSafe``, in SQL ``<=>``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_jobs.schema.lake_types import FLOATS, LakeKind, LakeType
from spark_jobs.schema.table_shape import LakeColumn

if TYPE_CHECKING:
    from pyspark.sql import Column


def printed(value: str, column: LakeColumn) -> Column:
    """``printed_sql`` as a column."""
    from pyspark.sql import functions as fn

    return fn.expr(printed_sql(value, column))


def printed_sql(value: str, column: LakeColumn) -> str:
    """An expression that is equal for two values if, and only if, PostgreSQL prints them alike. ``value``: an
    expression."""
    return _printed(value, column.lake_type, 0)


def _printed(value: str, lake_type: LakeType, depth: int) -> str:
    if lake_type.element is not None:
        each = f"e{depth}"
        return f"transform({value}, {each} -> struct({each} IS NULL, {_printed(each, lake_type.element, depth + 1)}))"
    if lake_type.kind is LakeKind.VARIANT:  # Spark neither compares nor hashes variants; their keys are always sorted
        return f"to_json({value})"
    return f"CAST({value} AS STRING)" if lake_type.kind in FLOATS else value


def quick_hash_sql(value: str, column: LakeColumn) -> str:
    """An expression whose hash in Spark is the same for values that are ``printed`` alike. Others may have it too: to
    print a number takes longer than all else of a hash."""
    return printed_sql(value, column) if column.lake_type.kind is LakeKind.VARIANT else value
