"""Compares two tables with the same columns on executors: a full outer join by key, every column null-safe.

Without a key each row must have the same number of copies in both: equal rows are numbered, and the join is by all
columns and that number.

Values are equal when PostgreSQL prints them alike: NaN is NaN, 0 is not -0, NULL is not an empty string. The counts are
taken in the last stage of the one job, so a task that runs twice counts once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, cast

from spark_jobs.schema.lake_types import LakeKind
from spark_jobs.schema.table_shape import LakeColumn, TableShape
from spark_jobs.verify.table_verified import Difference, DifferingRow, KeyValue, RowCounts
from spark_jobs.writers.merge_sql import quoted
from spark_jobs.writers.with_spark.row_equality import printed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

_KEY_CHARACTERS = 200
# a difference that a second look may not find
IN_FLIGHT = "in_flight"


@dataclass(frozen=True)
class RowComparison:
    """``rows`` are the first that differ, by key."""

    counts: RowCounts
    rows: tuple[DifferingRow, ...]


def compare_rows(
    source: DataFrame, lake: DataFrame, shape: TableShape, *, most: int, source_is_sample: bool = False
) -> RowComparison:
    """Both sides have the columns of ``shape``; the source has each key once. At most ``most`` rows are reported, each
    identified by its key, or by all its values without one.

    ``source_is_sample``: rows that only the lake has are no difference, and are not counted.
    """
    how = "left_outer" if source_is_sample else "full_outer"
    return comparison(joined_rows(source, lake, shape, how), shape, most=most)


def joined_rows(source: DataFrame, lake: DataFrame, shape: TableShape, how: str = "full_outer") -> DataFrame:
    """The rows of both sides, joined, with a column ``difference``: null where they are equal."""
    return _joined(source, lake, shape, how).withColumn("difference", _difference(shape))


def comparison(joined: DataFrame, shape: TableShape, *, most: int) -> RowComparison:
    """The differences of rows that ``joined_rows`` returned, counted, and the first of them."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as fn

    observation = Observation()
    kinds = ("missing", "extra", "changed", IN_FLIGHT)
    observed = joined.observe(
        observation,
        fn.count(fn.when(_counts_for_source(shape), 1)).alias("source_rows"),
        fn.count(fn.when(fn.col("copy").isNotNull(), 1)).alias("lake_rows"),
        *(fn.count(fn.when(fn.col("difference") == kind, 1)).alias(kind) for kind in kinds),
    )
    key = key_columns(shape)
    differing = observed.where(fn.col("difference") != IN_FLIGHT).orderBy(*key, "difference").limit(max(most, 1))
    shown = differing.select(
        "difference",
        fn.array(*(_key_text(column, shape.columns[i]) for i, column in zip(_named_by(shape), key, strict=True))),
        _differing_columns(shape),
    )
    rows = tuple(_differing_row(row, shape) for row in shown.collect())
    return RowComparison(RowCounts(**{name: int(count) for name, count in observation.get.items()}), rows[:most])


def _joined(source: DataFrame, lake: DataFrame, shape: TableShape, how: str) -> DataFrame:
    """Columns ``s0``… and ``l0``…; ``in_source``; ``copy`` numbers the lake's rows of one key from 1.

    The numbering needs no shuffle or sort beyond those of the join.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as fn

    names = [quoted(column.name) for column in shape.columns]
    of_source = source.select(*(fn.col(name).alias(_source(i)) for i, name in enumerate(names))).withColumn(
        "in_source", fn.lit(True)
    )
    of_lake = lake.select(*(fn.col(name).alias(_lake(i)) for i, name in enumerate(names)))
    if not shape.has_key:
        equal = reduce(and_, (_equal(i, column) for i, column in enumerate(shape.columns)))
        of_source, of_lake = _numbered(of_source, shape, _source), _numbered(of_lake, shape, _lake)
        same_copy = fn.col(_copy(_source)) == fn.col(_copy(_lake))
        return of_source.join(of_lake, equal & same_copy, how).withColumnRenamed(_copy(_lake), "copy")
    keys = [fn.col(_lake(i)) for i in shape.key_indices]
    numbered = of_lake.withColumn("copy", fn.row_number().over(Window.partitionBy(*keys).orderBy(*keys)))
    same_key = [fn.col(_source(i)) == fn.col(_lake(i)) for i in shape.key_indices]
    return of_source.join(numbered, reduce(and_, same_key), how)


def _numbered(rows: DataFrame, shape: TableShape, name: Callable[[int], str]) -> DataFrame:
    """Equal rows numbered from 1."""
    from pyspark.sql import Window
    from pyspark.sql import functions as fn

    values = [printed(name(i), column) for i, column in enumerate(shape.columns)]
    return rows.withColumn(_copy(name), fn.row_number().over(Window.partitionBy(*values).orderBy(*values)))


def key_columns(shape: TableShape) -> list[Column]:
    """What identifies a joined row: the columns of its key, or all of them without one."""
    from pyspark.sql import functions as fn

    return [fn.coalesce(fn.col(_source(i)), fn.col(_lake(i))) for i in _named_by(shape)]


def copy_number(shape: TableShape) -> Column:
    """Tells joined rows with equal ``key_columns`` apart."""
    from pyspark.sql import functions as fn

    other = fn.lit(1) if shape.has_key else fn.col(_copy(_source))
    return fn.coalesce(fn.col("copy"), other)


def source_state(shape: TableShape) -> Column:
    """A hash of the source's values in a joined row; null if the source has no such row."""
    from pyspark.sql import functions as fn

    values = [printed(_source(i), column) for i, column in enumerate(shape.columns)]
    return fn.when(fn.col("in_source"), row_hash(values))


def row_hash(values: Sequence[Column]) -> Column:
    """Spark's hash skips nulls: NULL, 'a' would hash like 'a', NULL."""
    from pyspark.sql import functions as fn

    return fn.xxhash64(*values, *(value.isNull() for value in values))


def _named_by(shape: TableShape) -> Sequence[int]:
    """The indices of the columns that identify a row."""
    return shape.key_indices or range(len(shape.columns))


def _counts_for_source(shape: TableShape) -> Column:
    """With a key, a row of the source may have matched several rows of the lake; it counts once."""
    from pyspark.sql import functions as fn

    if not shape.has_key:
        return fn.col("in_source")
    return fn.col("in_source") & (fn.col("copy").isNull() | (fn.col("copy") == 1))


def _difference(shape: TableShape) -> Column:
    from pyspark.sql import functions as fn

    if not shape.has_key:
        return fn.when(fn.col("copy").isNull(), "missing").when(fn.col("in_source").isNull(), "extra")
    equal = reduce(and_, (_equal(i, column) for i, column in enumerate(shape.columns)))
    return (
        fn.when(fn.col("copy").isNull(), "missing")
        .when(fn.col("in_source").isNull() | (fn.col("copy") > 1), "extra")
        .when(~equal, "changed")
    )


def _differing_columns(shape: TableShape) -> Column:
    """The indices of a changed row's columns that differ."""
    from pyspark.sql import functions as fn

    places = (fn.when(~_equal(i, column), fn.lit(i)) for i, column in enumerate(shape.columns))
    none = fn.array().cast("array<int>")
    return fn.when(fn.col("difference") == "changed", fn.array_compact(fn.array(*places))).otherwise(none)


def _equal(i: int, column: LakeColumn) -> Column:
    return printed(_source(i), column).eqNullSafe(printed(_lake(i), column))


def _key_text(value: Column, column: LakeColumn) -> Column:
    from pyspark.sql import functions as fn

    if column.lake_type.kind is LakeKind.BINARY:
        return fn.concat(fn.lit("\\x"), fn.lower(fn.hex(fn.substring(value, 1, _KEY_CHARACTERS // 2))))
    return fn.substring(value.cast("string"), 1, _KEY_CHARACTERS)


def _differing_row(row: Row, shape: TableShape) -> DifferingRow:
    difference, texts, places = cast("tuple[Difference, Sequence[str | None], Sequence[int]]", tuple(row))
    key = tuple(KeyValue(shape.columns[i].name, text) for i, text in zip(_named_by(shape), texts, strict=True))
    return DifferingRow(difference, key, tuple(shape.columns[i].name for i in places))


def _copy(of: Callable[[int], str]) -> str:
    return f"copy_{of(0)}"


def _source(index: int) -> str:
    return f"s{index}"


def _lake(index: int) -> str:
    return f"l{index}"
