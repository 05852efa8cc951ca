"""JSON text into Delta's VARIANT, on its way into the table.

Spark's parser refuses a key that comes twice, half of a surrogate pair and what is nested too deep. Its own error holds
the text, so it is not asked for one. https://docs.delta.io/latest/delta-variant.html
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from spark_jobs.lake.merge_sql import sql_text
from spark_jobs.schema.lake_types import LakeKind
from spark_jobs.schema.net_columns import value
from spark_jobs.schema.table_shape import LakeColumn
from spark_jobs.spark.causes import NOT_A_VARIANT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def with_variants(rows: DataFrame, columns: Sequence[LakeColumn]) -> DataFrame:
    """``rows`` of values as the decoder yields them, with variants in place of their JSON texts. A text that is none
    follows the column's policy when the rows are read."""
    from pyspark.sql import functions as fn

    found = {value(i): fn.expr(stored_sql(value(i), column)) for i, column in enumerate(columns) if is_variant(column)}
    return rows.withColumns(found) if found else rows


def is_variant(column: LakeColumn) -> bool:
    return column.lake_type.kind is LakeKind.VARIANT


def stored_sql(text: str, column: LakeColumn) -> str:
    """The expression of a value as the table holds it; ``text``: that of one as the decoder yields it."""
    if not is_variant(column):
        return text
    if column.on_unrepresentable in ("null", "clamp"):
        return f"try_parse_json({text})"
    refused = f"CAST(raise_error({sql_text(f'column {column.name}: {NOT_A_VARIANT}')}) AS variant)"
    return f"coalesce(try_parse_json({text}), CASE WHEN {text} IS NOT NULL THEN {refused} END)"
