"""Convert JSON text to Delta's VARIANT when it is written to the table.

Spark's parser refuses duplicate keys, unpaired surrogates and values that are nested too deep. Its error message would
contain the text, a cell value, so ``try_parse_json`` is used. https://docs.delta.io/latest/delta-variant.html
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from spark_jobs.schema.lake_types import LakeKind
from spark_jobs.schema.net_columns import value
from spark_jobs.schema.table_shape import LakeColumn
from spark_jobs.spark.causes import NOT_A_VARIANT
from spark_jobs.writers.merge_sql import sql_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def with_variants(rows: DataFrame, columns: Sequence[LakeColumn]) -> DataFrame:
    """``rows`` as the decoder yields them, with variants in place of their JSON texts. A text that the parser refuses
    is treated by the column's policy when the rows are read."""
    from pyspark.sql import functions as fn

    variants = {
        value(i): fn.expr(stored_sql(value(i), column)) for i, column in enumerate(columns) if is_variant(column)
    }
    return rows.withColumns(variants) if variants else rows


def is_variant(column: LakeColumn) -> bool:
    return column.lake_type.kind is LakeKind.VARIANT


def stored_sql(text: str, column: LakeColumn) -> str:
    """The expression of a value as the table stores it. ``text``: the expression of the value that the decoder
    yields."""
    if not is_variant(column):
        return text
    if column.on_unrepresentable in ("null", "clamp"):
        return f"try_parse_json({text})"
    refused = f"CAST(raise_error({sql_text(f'column {column.name}: {NOT_A_VARIANT}')}) AS variant)"
    return f"coalesce(try_parse_json({text}), CASE WHEN {text} IS NOT NULL THEN {refused} END)"
