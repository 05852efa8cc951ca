"""Insert and delete copies of rows in a Delta table without a key, in one MERGE, or all rows of the table anew.

MERGE cannot delete one of several equal rows. So it deletes all copies of such a row and inserts those that stay again;
their number is counted first. Rows are found by a hash of the whole row, and then compared: they are equal if
PostgreSQL prints them alike; nulls are equal. Commit columns do not count: of rows that are equal but for these, the
oldest go.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from spark_jobs.schema.net_columns import COPIES, DELETE, OPERATION, UPSERT, misfit_fields, value
from spark_jobs.schema.table_shape import TableShape
from spark_jobs.spark.causes import MISSING_ROW
from spark_jobs.writers.merge_sql import NET_CHANGE, in_range, inserting, merging, named_columns, quoted
from spark_jobs.writers.net_source import NetSource
from spark_jobs.writers.with_spark.row_equality import printed, printed_sql, quick_hash_sql

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_HASH = "row_hash"


def summed_copies(rows: DataFrame, shape: TableShape) -> DataFrame:
    """One row for each set of equal rows, with the sum of their copies; sums of 0 are left out. ``rows`` may have the
    columns of misfits."""
    from pyspark.sql import functions as fn

    summed = fn.sum(COPIES.name).cast("bigint").alias(COPIES.name)
    noted = [field.name for field in misfit_fields(shape) if field.name in rows.columns]
    equal = (printed(value(i), column).alias(f"equal{i}") for i, column in enumerate(shape.columns))
    return (
        rows.groupBy(*equal)
        .agg(summed, *_firsts(shape), *(fn.max(name).alias(name) for name in noted))
        .where(f"{COPIES.name} <> 0")
        .select(*_names(shape, COPIES.name), *noted)
    )


def added_copies(rows: DataFrame, net: NetSource) -> DataFrame:
    """The rows that the table gets, which was emptied before, or loses none."""
    if net.truncated and _has_ages(net.columns.shape):
        return _newest_left(rows, net, None)
    return _copied(rows, net)


def merge_copies(rows: DataFrame, path: str, net: NetSource) -> None:
    """Merge ``rows`` of ``COPIES`` and values into the table at ``path``. Fails if more copies of a row go than the
    table has, unless the net change is lenient."""
    from pyspark.sql import functions as fn

    shape, table = net.columns.shape, rows.sparkSession.read.format("delta").load(path)
    going = _going(rows, shape)
    if net.key_range is not None:
        table = table.alias("t").where(in_range(shape, net.key_range))
    left = _left(rows, _joined(table, going, shape, "left_semi"), net)
    deleted = going.select(fn.lit(DELETE).alias(OPERATION), _HASH, *_names(shape))
    inserted = left.select(fn.lit(UPSERT).alias(OPERATION), fn.lit(None).cast("bigint").alias(_HASH), *_names(shape))
    deleted.unionByName(inserted).createOrReplaceTempView(NET_CHANGE)
    rows.sparkSession.sql(_statement(path, net))


def with_copies(rows: DataFrame, table: DataFrame, net: NetSource) -> DataFrame:
    """All rows of the ``table`` once ``rows`` are merged into it. Fails as ``merge_copies``."""
    shape = net.columns.shape
    going = _going(rows, shape)
    left = _left(rows, _joined(table, going, shape, "left_semi"), net)
    return _joined(table, going, shape, "left_anti").unionByName(left).selectExpr(*named_columns(shape.columns))


def _has_ages(shape: TableShape) -> bool:
    """Whether commit columns tell which of equal rows are older."""
    return shape.source_columns != shape.columns


def _copied(rows: DataFrame, net: NetSource) -> DataFrame:
    """The values of each row, once for each copy that is added. A row that is removed makes the query fail, as there
    are no rows to delete it from; if the net change is lenient, it is ignored."""
    from pyspark.sql import functions as fn

    copies = fn.col(COPIES.name)
    wrong = fn.lit(0) if net.lenient else fn.raise_error(fn.lit(MISSING_ROW)).cast("bigint")
    return _repeated(rows, fn.when(copies < 0, wrong).otherwise(copies), net.columns.shape)


def _going(rows: DataFrame, shape: TableShape) -> DataFrame:
    """Those of which copies go, with a hash of the whole row."""
    from pyspark.sql import functions as fn

    return rows.where(f"{COPIES.name} < 0").withColumn(_HASH, fn.expr(_hash(map(value, _places(shape)), shape)))


def _joined(table: DataFrame, going: DataFrame, shape: TableShape, how: str) -> DataFrame:
    """The table's rows of which copies are deleted, or those of which none are. The hash alone is the join's key: then
    Spark neither sorts nor looks up all columns of all rows."""
    from pyspark.sql import functions as fn

    names = [quoted(column.name) for column in shape.columns]
    hashed = fn.expr(_hash(names, shape)).alias(_HASH)
    hashed_rows = table.select(hashed, *(fn.col(name).alias(value(i)) for i, name in enumerate(names)))
    equal = _equal((f"t.{value(i)}" for i in _places(shape)), shape)
    return hashed_rows.alias("t").join(going.alias("s"), fn.expr(f"t.{_HASH} = s.{_HASH} AND {equal}"), how).drop(_HASH)


def _hash(values: Iterable[str], shape: TableShape) -> str:
    """Of the ``values`` of all columns, expressions, those of the source."""
    of_source = zip(values, shape.source_columns, strict=False)
    return f"xxhash64({', '.join(quick_hash_sql(each, column) for each, column in of_source)})"


def _equal(values: Iterable[str], shape: TableShape) -> str:
    """The condition for a row that is equal to ``s``. Written so that Spark takes no part of it for a key of a join."""
    pairs = (
        (printed_sql(each, column), printed_sql(f"s.{value(i)}", column))
        for i, (each, column) in enumerate(zip(values, shape.source_columns, strict=False))
    )
    return " AND ".join(f"coalesce({own} = {other}, {own} IS NULL AND {other} IS NULL)" for own, other in pairs)


def _left(rows: DataFrame, table_rows: DataFrame, net: NetSource) -> DataFrame:
    """The copies that are left of ``table_rows``, which hold every row of the table of which copies go, and all that
    are added."""
    from pyspark.sql import functions as fn

    shape = net.columns.shape
    if _has_ages(shape):
        return _newest_left(rows, net, table_rows)
    names = _names(shape, COPIES.name)
    once = table_rows.withColumn(COPIES.name, fn.lit(1).cast("bigint")).select(*names)
    left_over = summed_copies(once.unionByName(rows.where(f"{COPIES.name} < 0").select(*names)), shape)
    added = rows.where(f"{COPIES.name} > 0")
    return _copied(left_over, net).unionByName(_copied(added, net))


def _newest_left(rows: DataFrame, net: NetSource, table_rows: DataFrame | None) -> DataFrame:
    """Each copy left of ``table_rows`` and those added, the oldest gone.

    No added row is older than one that was there before. So it makes no difference when in the range a row went.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as fn

    shape = net.columns.shape
    going = rows.where(f"{COPIES.name} < 0").select(fn.expr(f"-{COPIES.name}").alias("going"), *_names(shape))
    copies = _repeated(rows.where(f"{COPIES.name} > 0"), fn.col(COPIES.name), shape)
    copies = copies if table_rows is None else copies.unionByName(table_rows)
    sides = going.unionByName(copies.select(fn.lit(0).cast("bigint").alias("going"), *_names(shape)))
    equal = Window.partitionBy(*(printed(value(i), each) for i, each in enumerate(shape.source_columns)))
    age = (fn.col(value(i)).asc_nulls_first() for i, each in enumerate(shape.columns) if each.of_commit)
    goes, is_delete = fn.sum("going").over(equal), fn.col("going") > 0
    counted = sides.select(
        goes.alias("goes"),
        (fn.count(fn.lit(1)).over(equal) - 1 - goes).alias("left_over"),
        # the deletes come first, then the copies by their age
        fn.row_number().over(equal.orderBy(fn.desc("going"), *age)).alias("place"),
        is_delete.alias("is_delete"),
        *_names(shape),
    )
    missing = fn.raise_error(fn.lit(MISSING_ROW)).cast("boolean")
    enough = fn.lit(False) if net.lenient else fn.when(fn.col("left_over") < 0, missing).otherwise(fn.lit(False))
    is_left = fn.when(fn.col("is_delete"), enough).otherwise(fn.expr("goes = 0 OR place - 1 > goes"))
    return counted.where(is_left).select(*_names(shape))


def _repeated(rows: DataFrame, copies: Column, shape: TableShape) -> DataFrame:
    from pyspark.sql import functions as fn

    repeated = fn.explode(fn.array_repeat(fn.lit(True), copies.cast("int")))
    return rows.select(repeated.alias("copy"), *_names(shape)).select(*_names(shape))


def _statement(path: str, net: NetSource) -> str:
    shape = net.columns.shape
    names = [quoted(column.name) for column in shape.columns]
    of_table = [f"t.{name}" for name in names]
    matches = [f"s.{OPERATION} = {DELETE}", f"{_hash(of_table, shape)} = s.{_HASH}", _equal(of_table, shape)]
    within = [] if net.key_range is None else [in_range(shape, net.key_range)]
    new = inserting(names, [f"s.{each}" for each in _names(shape)])
    return merging(path, [*matches, *within], ["WHEN MATCHED THEN DELETE", new])


def _places(shape: TableShape) -> range:
    return range(len(shape.columns))


def _names(shape: TableShape, *before: str) -> list[str]:
    return [*before, *(value(i) for i in _places(shape))]


def _firsts(shape: TableShape) -> list[Column]:
    from pyspark.sql import functions as fn

    return [fn.first(name).alias(name) for name in _names(shape)]
