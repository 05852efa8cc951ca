"""The cheaper comparison: each side is reduced to a few thousand hashes where its rows are read, and only
buckets whose hashes differ are compared row by row. If all are equal, no row is shuffled, sorted or joined.

A row falls into a bucket by the hash of its key. For each bucket the number of rows and the sum of their 64-bit hashes
are compared: a difference goes unseen once in 2^64, unless someone constructed it. It is a sum, since the XOR of two
equal rows is 0.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from spark_jobs.schema.table_shape import TableShape
from spark_jobs.verify.compare_rows import RowComparison, compare_rows, row_hash
from spark_jobs.verify.table_verified import RowCounts
from spark_jobs.writers.merge_sql import quoted
from spark_jobs.writers.with_spark.row_equality import printed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_BUCKETS = 4096


def compare_hashes(source: DataFrame, lake: DataFrame, shape: TableShape, *, most: int) -> RowComparison:
    """The result of ``compare_rows`` if something differs; each side is then read a second time."""
    of_source, of_lake = _hashes(source, shape), _hashes(lake, shape)
    rows = RowCounts(_rows(of_source), _rows(of_lake))
    differing = sorted(bucket for bucket in {*of_source, *of_lake} if of_source.get(bucket) != of_lake.get(bucket))
    if not differing:
        return RowComparison(rows, ())
    within = _bucket(shape).isin(differing)
    result = compare_rows(source.where(within), lake.where(within), shape, most=most)
    counts = result.counts
    return RowComparison(
        RowCounts(rows.source_rows, rows.lake_rows, counts.missing, counts.extra, counts.changed), result.rows
    )


def _hashes(rows: DataFrame, shape: TableShape) -> dict[int, tuple[int, Decimal]]:
    """Per bucket: the number of its rows, and the sum of their hashes."""
    from pyspark.sql import functions as fn

    values = [printed(quoted(column.name), column) for column in shape.columns]
    hashed = rows.select(_bucket(shape).alias("bucket"), row_hash(values).alias("hash"))
    buckets = hashed.groupBy("bucket").agg(fn.count(fn.lit(1)), fn.sum(fn.col("hash").cast("decimal(20,0)"))).collect()
    return {row[0]: (row[1], row[2]) for row in buckets}


def _bucket(shape: TableShape) -> Column:
    from pyspark.sql import functions as fn

    places = shape.key_indices or range(len(shape.columns))
    key = [printed(quoted(shape.columns[i].name), shape.columns[i]) for i in places]
    return fn.pmod(fn.xxhash64(*key), fn.lit(_BUCKETS)).cast("int")


def _rows(hashes: dict[int, tuple[int, Decimal]]) -> int:
    return sum(rows for rows, _ in hashes.values())
