"""Insert and delete copies of rows in a Delta table without a key, in one MERGE.

MERGE cannot delete one of several equal rows. So it deletes all copies of such a row and inserts those that stay again;
their number is counted first. Rows are equal if PostgreSQL prints them alike; nulls are equal. Commit columns do not
count: of rows that are equal but for these, the oldest go.
"""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from spark_jobs.delta.table import delta_identifier
from spark_jobs.schema.net_columns import COPIES, DELETE, OPERATION, UPSERT, misfit_fields, value
from spark_jobs.schema.table_shape import TableShape
from spark_jobs.spark.causes import MISSING_ROW
from spark_jobs.writers.merge_sql import KeyRange, in_range, quoted
from spark_jobs.writers.row_equality import printed, printed_sql

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_SOURCE = "copies_of_rows"  # a temporary view


def summed_copies(rows: DataFrame, shape: TableShape) -> DataFrame:
    """One row for each set of equal rows, with the sum of their copies; sums of 0 are left out. ``rows`` may have the
    columns of misfits."""
    from pyspark.sql import functions as fn

    summed = fn.sum(COPIES.name).cast("bigint").alias(COPIES.name)
    noted = [field.name for field in misfit_fields(shape) if field.name in rows.columns]
    equal = (printed(fn.col(value(i)), column).alias(f"equal{i}") for i, column in enumerate(shape.columns))
    return (
        rows.groupBy(*equal)
        .agg(summed, *_firsts(shape), *(fn.max(name).alias(name) for name in noted))
        .where(f"{COPIES.name} <> 0")
        .select(*_names(shape, COPIES.name), *noted)
    )


def copied_rows(rows: DataFrame, shape: TableShape, *, lenient: bool) -> DataFrame:
    """The values of each row, once for each copy that is added. A row that is removed makes the query fail, as
    there are no rows to delete it from; if ``lenient``, it is ignored."""
    from pyspark.sql import functions as fn

    copies = _never_below_zero(fn.col(COPIES.name), lenient=lenient)
    return _repeated(rows, copies, shape)


def merge_copies(rows: DataFrame, path: str, shape: TableShape, key_range: KeyRange | None, *, lenient: bool) -> None:
    """Merge ``rows`` of ``COPIES`` and values into the table at ``path``. Fails if more copies of a row go than the
    table has, unless ``lenient``."""
    from pyspark.sql import functions as fn

    if shape.source_columns != shape.columns:
        table_rows = _held_equal(rows.where(f"{COPIES.name} < 0"), path, shape, key_range)
        _oldest_gone(rows, shape, table_rows, lenient=lenient).createOrReplaceTempView(_SOURCE)
        rows.sparkSession.sql(_merge_statement(path, shape, key_range))
        return
    going = _going(rows.where(f"{COPIES.name} < 0"), path, shape, key_range, lenient=lenient)
    inserted = (
        _repeated(going, fn.col("stay"), shape),
        _repeated(rows.where(f"{COPIES.name} > 0"), fn.col(COPIES.name), shape),
    )
    source = going.select(fn.lit(DELETE).alias(OPERATION), *_names(shape))
    for copies in inserted:
        source = source.unionByName(copies.select(fn.lit(UPSERT).alias(OPERATION), *_names(shape)))
    source.createOrReplaceTempView(_SOURCE)
    rows.sparkSession.sql(_merge_statement(path, shape, key_range))


def _going(rows: DataFrame, path: str, shape: TableShape, key_range: KeyRange | None, *, lenient: bool) -> DataFrame:
    """Each row that loses copies, once, with the number of copies that are left (``stay``)."""
    from pyspark.sql import functions as fn

    table = rows.sparkSession.read.format("delta").load(path).alias("t")
    if key_range is not None:
        table = table.where(in_range(shape, key_range))
    table_rows = table.select(
        *(fn.col(f"t.{quoted(column.name)}").alias(f"h{i}") for i, column in enumerate(shape.columns))
    )
    equal = (
        printed(fn.col(value(i)), column).eqNullSafe(printed(fn.col(f"h{i}"), column))
        for i, column in enumerate(shape.columns)
    )
    numbered = rows.withColumn("row", fn.monotonically_increasing_id())
    matched = numbered.join(table_rows.withColumn("is_held", fn.lit(True)), reduce(and_, equal), "left")
    counted = matched.groupBy("row").agg(
        (fn.count("is_held") + fn.first(COPIES.name)).alias("left_over"), *_firsts(shape)
    )
    return counted.select(_never_below_zero(fn.col("left_over"), lenient=lenient).alias("stay"), *_names(shape))


def rows_left(rows: DataFrame, shape: TableShape, *, lenient: bool) -> DataFrame:
    """The rows of a table that was empty before ``rows`` of ``COPIES`` and values with commit columns."""
    return _oldest_gone(rows, shape, None, lenient=lenient).where(f"{OPERATION} = {UPSERT}").select(*_names(shape))


def _held_equal(going: DataFrame, path: str, shape: TableShape, key_range: KeyRange | None) -> DataFrame:
    """The table's rows of which copies go."""
    from pyspark.sql import functions as fn

    table = going.sparkSession.read.format("delta").load(path).alias("t")
    if key_range is not None:
        table = table.where(in_range(shape, key_range))
    table_rows = table.select(
        *(fn.col(f"t.{quoted(each.name)}").alias(value(i)) for i, each in enumerate(shape.columns))
    )
    going_rows = going.select(*(fn.col(value(i)).alias(f"g{i}") for i in range(len(shape.source_columns))))
    equal = (
        printed(fn.col(value(i)), column).eqNullSafe(printed(fn.col(f"g{i}"), column))
        for i, column in enumerate(shape.source_columns)
    )
    return table_rows.join(going_rows, reduce(and_, equal), "left_semi")


def _oldest_gone(rows: DataFrame, shape: TableShape, table_rows: DataFrame | None, *, lenient: bool) -> DataFrame:
    """A delete of each row of which copies go, and an upsert of each copy left of ``table_rows`` and those added.

    No added row is older than one that was there before. So it makes no difference when in the range a row went.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as fn

    going = rows.where(f"{COPIES.name} < 0").select(fn.expr(f"-{COPIES.name}").alias("going"), *_names(shape))
    copies = _repeated(rows.where(f"{COPIES.name} > 0"), fn.col(COPIES.name), shape)
    copies = copies if table_rows is None else copies.unionByName(table_rows)
    sides = going.unionByName(copies.select(fn.lit(0).cast("bigint").alias("going"), *_names(shape)))
    equal = Window.partitionBy(*(printed(fn.col(value(i)), each) for i, each in enumerate(shape.source_columns)))
    age = (fn.col(value(i)).asc_nulls_first() for i, each in enumerate(shape.columns) if each.of_commit)
    goes, is_delete = fn.sum("going").over(equal), fn.col("going") > 0
    counted = sides.select(
        goes.alias("goes"),
        (fn.count(fn.lit(1)).over(equal) - 1 - goes).alias("left_over"),
        # the delete comes first, then the copies by their age
        fn.row_number().over(equal.orderBy(fn.desc("going"), *age)).alias("place"),
        is_delete.alias("is_delete"),
        *_names(shape),
    )
    missing = fn.raise_error(fn.lit(MISSING_ROW)).cast("int")
    delete = fn.lit(DELETE) if lenient else fn.when(fn.col("left_over") < 0, missing).otherwise(DELETE)
    operation = fn.when(fn.col("is_delete"), delete).otherwise(UPSERT).alias(OPERATION)
    return counted.where("is_delete OR goes = 0 OR place - 1 > goes").select(operation, *_names(shape))


def _repeated(rows: DataFrame, copies: Column, shape: TableShape) -> DataFrame:
    from pyspark.sql import functions as fn

    repeated = fn.explode(fn.array_repeat(fn.lit(True), copies.cast("int")))
    return rows.select(repeated.alias("copy"), *_names(shape)).select(*_names(shape))


def _never_below_zero(number: Column, *, lenient: bool) -> Column:
    from pyspark.sql import functions as fn

    wrong = fn.lit(0) if lenient else fn.raise_error(fn.lit(MISSING_ROW)).cast("bigint")
    return fn.when(number < 0, wrong).otherwise(number)


def _merge_statement(path: str, shape: TableShape, key_range: KeyRange | None) -> str:
    names = [quoted(column.name) for column in shape.columns]
    of_table = (printed_sql(f"t.{quoted(column.name)}", column) for column in shape.source_columns)
    of_source = (printed_sql(f"s.{value(i)}", column) for i, column in enumerate(shape.source_columns))
    equal = (f"{target} <=> {source}" for target, source in zip(of_table, of_source, strict=True))
    within = () if key_range is None else (in_range(shape, key_range),)
    values = ", ".join(f"s.{value(i)}" for i in _places(shape))
    inserted = f"INSERT ({', '.join(names)}) VALUES ({values})"  # noqa: S608 - quoted names
    return "\n".join(
        (
            f"MERGE INTO {delta_identifier(path)} AS t",
            f"USING {_SOURCE} AS s",
            f"ON {' AND '.join((f's.{OPERATION} = {DELETE}', *equal, *within))}",
            "WHEN MATCHED THEN DELETE",
            f"WHEN NOT MATCHED AND s.{OPERATION} = {UPSERT} THEN {inserted}",
        )
    )


def _places(shape: TableShape) -> range:
    return range(len(shape.columns))


def _names(shape: TableShape, *before: str) -> list[str]:
    return [*before, *(value(i) for i in _places(shape))]


def _firsts(shape: TableShape) -> list[Column]:
    from pyspark.sql import functions as fn

    return [fn.first(name).alias(name) for name in _names(shape)]
