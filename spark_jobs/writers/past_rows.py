"""What a snapshot writes to a table in a mode other than ``mirror``: the source's rows, and the table's past rows.

A snapshot does not show when rows changed before it. So rows that differ from the table's are taken to have changed at
the snapshot's LSN.
"""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from spark_jobs.schema.mode_columns import (
    CHANGE,
    COMMIT_LSN,
    COMMIT_TIME,
    ORDINAL,
    VALID_FROM,
    VALID_FROM_LSN,
    ModeColumn,
    mode_columns,
)
from spark_jobs.schema.moment import Moment
from spark_jobs.schema.net_columns import value
from spark_jobs.schema.table_shape import TableShape
from spark_jobs.table_mode import Mode, holds_changes
from spark_jobs.writers.delta_table import table_columns
from spark_jobs.writers.merge_sql import quoted
from spark_jobs.writers.row_equality import printed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

BEFORE_ALL_CHANGES = -1  # the ordinal of a row that a snapshot brought


def snapshot_rows(rows: DataFrame, mode: Mode, moment: Moment) -> DataFrame:
    """The source's ``rows`` with the mode's columns, which say that the rows exist since the snapshot."""
    values = {
        VALID_FROM_LSN: str(int(moment.lsn)),
        VALID_FROM: moment.sql,
        CHANGE: "'snapshot'",
        COMMIT_LSN: str(int(moment.lsn)),
        ORDINAL: str(BEFORE_ALL_CHANGES),
        COMMIT_TIME: moment.sql,
    }
    described = (
        f"CAST({values.get(column, 'NULL')} AS {column.sql}) AS {quoted(column.name)}" for column in mode_columns(mode)
    )
    return rows.selectExpr("*", *described)


def rows_with_past(rows: DataFrame, path: str, shape: TableShape, mode: Mode, moment: Moment) -> DataFrame:
    """All rows of the table at ``path`` after the snapshot, past rows included.

    Columns are matched by attribute number. A value that does not fit its column's new type raises Spark's error.
    """
    held = _held(rows.sparkSession, path, shape, mode)
    if holds_changes(mode):
        return held.unionByName(snapshot_rows(rows, mode, moment))
    if mode == "soft_delete":
        return _soft_deleted(rows, held, shape, moment)
    return _history(rows, held, shape, moment)


def _held(spark: SparkSession, path: str, shape: TableShape, mode: Mode) -> DataFrame:
    """The table's rows, in the source's current columns."""
    names = {column.attnum: column.name for column in table_columns(spark, path)}
    values = (
        f"CAST({quoted(names[column.attnum]) if column.attnum in names else 'NULL'} AS {column.lake_type.sql})"
        f" AS {quoted(column.name)}"
        for column in shape.columns
    )
    kept = (quoted(column.name) for column in mode_columns(mode))
    return spark.read.format("delta").load(path).selectExpr(*values, *kept)


def _soft_deleted(rows: DataFrame, held: DataFrame, shape: TableShape, moment: Moment) -> DataFrame:
    """Rows that the source no longer has are marked as deleted at ``moment``, unless they already were."""
    from pyspark.sql import functions as fn

    (deleted,) = mode_columns("soft_delete")
    joined = _joined(rows, held, shape, "soft_delete")
    is_there = fn.col("is_there").isNotNull()
    values = (
        fn.when(is_there, fn.col(value(i))).otherwise(fn.col(_held_value(i))).alias(column.name)
        for i, column in enumerate(shape.columns)
    )
    at = fn.when(~is_there, fn.coalesce(fn.col(deleted.net), fn.expr(moment.sql)))
    return joined.select(*values, at.alias(deleted.name))


def _history(rows: DataFrame, held: DataFrame, shape: TableShape, moment: Moment) -> DataFrame:
    """An open version stays open if the source has an equal row. If not, it ends, and the source's row begins as a new
    version."""
    from pyspark.sql import functions as fn

    columns = mode_columns("history")
    from_lsn, from_at, to_lsn, to_at = columns
    is_open = fn.col(quoted(to_lsn.name)).isNull()
    joined = _joined(rows, held.where(is_open), shape, "history")
    is_there, was_there = fn.col("is_there").isNotNull(), fn.col("was_there").isNotNull()
    equal = reduce(
        and_,
        (
            printed(fn.col(value(i)), column).eqNullSafe(printed(fn.col(_held_value(i)), column))
            for i, column in enumerate(shape.columns)
        ),
    )
    stays = is_there & was_there & equal
    sides = joined.withColumn("stays", stays).withColumn("side", fn.explode(fn.array(fn.lit("held"), fn.lit("new"))))
    is_held = fn.col("side") == "held"
    sides = sides.where((is_held & was_there) | (~is_held & is_there & ~fn.col("stays")))
    values = (
        fn.when(is_held, fn.col(_held_value(i))).otherwise(fn.col(value(i))).alias(column.name)
        for i, column in enumerate(shape.columns)
    )

    def of(column: ModeColumn, held_value: Column, new_value: Column) -> Column:
        return fn.when(is_held, held_value).otherwise(new_value).cast(column.sql).alias(column.name)

    now_lsn, now = fn.lit(int(moment.lsn)), fn.expr(moment.sql)
    ends = ~fn.col("stays")
    versions = sides.select(
        *values,
        of(from_lsn, fn.col(from_lsn.net), now_lsn),
        of(from_at, fn.col(from_at.net), now),
        of(to_lsn, fn.when(ends, now_lsn), fn.lit(None)),
        of(to_at, fn.when(ends, now), fn.lit(None)),
    )
    return held.where(~is_open).unionByName(versions)


def _joined(rows: DataFrame, held: DataFrame, shape: TableShape, mode: Mode) -> DataFrame:
    """One row per key: the source's values if it ``is_there``, and the table's values if it ``was_there``."""
    from pyspark.sql import functions as fn

    new = rows.select(
        *(fn.col(quoted(column.name)).alias(value(i)) for i, column in enumerate(shape.columns)),
        fn.lit(True).alias("is_there"),
    )
    old = held.select(
        *(fn.col(quoted(column.name)).alias(_held_value(i)) for i, column in enumerate(shape.columns)),
        *(fn.col(quoted(column.name)).alias(column.net) for column in mode_columns(mode)),
        fn.lit(True).alias("was_there"),
    )
    same_key = reduce(and_, (fn.col(value(i)) == fn.col(_held_value(i)) for i in shape.key_indices))
    return new.join(old, same_key, "full_outer")


def _held_value(index: int) -> str:
    return f"h{index}"
