"""What a snapshot writes to a table in a mode other than ``mirror``: the source's rows, and the table's past rows.

A snapshot does not show when rows changed before it. So rows that differ from the table's are taken to have changed at
the snapshot's LSN.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from spark_jobs.errors import UnrepresentableError
from spark_jobs.options.table_mode import Form, has_versions, holds_changes
from spark_jobs.schema.column_changes import DeltaColumn, counterparts
from spark_jobs.schema.lake_types import LakeKind, LakeType
from spark_jobs.schema.mode_columns import (
    COMMIT_LSN,
    VALID_FROM,
    VALID_FROM_LSN,
    VALID_TO,
    VALID_TO_LSN,
    ModeColumn,
    mode_columns,
    own_columns,
    since_snapshot,
)
from spark_jobs.schema.moment import Moment
from spark_jobs.schema.net_columns import value
from spark_jobs.schema.table_shape import LakeColumn, TableShape
from spark_jobs.writers.merge_sql import quoted
from spark_jobs.writers.with_spark.delta_table import table_at, table_columns
from spark_jobs.writers.with_spark.row_equality import printed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_INTEGERS = (LakeKind.SMALLINT, LakeKind.INT, LakeKind.BIGINT)
# how many decimal digits of a float are certain
_DIGITS = {"float": 6, "double": 15}


def snapshot_rows(rows: DataFrame, form: Form, moment: Moment) -> DataFrame:
    """The source's ``rows`` with the form's columns, which say that the rows exist since the snapshot."""
    return rows.selectExpr("*", *(f"{_since(column, moment)} AS {quoted(column.name)}" for column in own_columns(form)))


def _since(column: ModeColumn, moment: Moment) -> str:
    """What the column has in a row of the snapshot, as an expression."""
    known = since_snapshot(column, moment)
    if isinstance(known, int) and column.sql == "timestamp":
        return f"timestamp_micros({known})"
    return f"CAST({'NULL' if known is None else repr(known)} AS {column.sql})"


def rows_with_past(
    rows: DataFrame, path: str, shape: TableShape, form: Form, moment: Moment, *, by_number: bool
) -> DataFrame:
    """All rows of the table at ``path`` after the snapshot, past rows included. ``by_number``: see ``counterparts``.

    Raises UnrepresentableError if a past row has a value that its column's new type does not hold.
    """
    spark = rows.sparkSession
    held = counterparts(table_columns(spark, path), shape.columns, by_number=by_number)
    _require_fitting(spark, path, shape, held)
    if has_versions(form.mode):
        table_rows = _earlier_rows(spark, path, shape, held, Form(form.mode), moment)
        return with_commit_columns(_history(rows, table_rows, shape, moment), form, moment)
    table_rows = _earlier_rows(spark, path, shape, held, form, moment)
    if holds_changes(form.mode):
        return table_rows.unionByName(snapshot_rows(rows, form, moment))
    return _soft_deleted(rows, table_rows, shape, form, moment)


def with_commit_columns(rows: DataFrame, form: Form, moment: Moment) -> DataFrame:
    """``rows`` in the form's mode, with its commit columns too. A version of a row knows its commits; other rows that
    do not, get ``moment``."""
    from pyspark.sql import functions as fn

    columns = [column for column in own_columns(form) if column.name in form.commit_columns]
    expressions = {column.name: _of_version(column) for column in columns}
    if not has_versions(form.mode):
        expressions = {column.name: _since(column, moment) for column in columns if column.name not in rows.columns}
    return rows.withColumns({name: fn.expr(text) for name, text in expressions.items()}) if expressions else rows


def _of_version(column: ModeColumn) -> str:
    """The commit that ended a version or, if none has, the one that it began with."""
    ends, begins = (VALID_TO_LSN, VALID_FROM_LSN) if column == COMMIT_LSN else (VALID_TO, VALID_FROM)
    return f"CASE WHEN `{VALID_TO_LSN.name}` IS NULL THEN `{begins.name}` ELSE `{ends.name}` END"


def _earlier_rows(
    spark: SparkSession, path: str, shape: TableShape, held: Mapping[int, DeltaColumn], form: Form, moment: Moment
) -> DataFrame:
    """The table's rows, in the source's current columns, of which it has those ``held``, and in those of the form."""
    values = (f"{_earlier(held.get(column.attnum), column)} AS {quoted(column.name)}" for column in shape.columns)
    kept = (quoted(column.name) for column in own_columns(form))
    return with_commit_columns(spark.read.format("delta").load(path), form, moment).selectExpr(*values, *kept)


def _earlier(before: DeltaColumn | None, now: LakeColumn) -> str:
    """The value of an earlier row, in the type that the column has now."""
    value = "NULL" if before is None else castable_sql(quoted(before.name), before.sql, now.lake_type)
    return f"CAST({value} AS {now.lake_type.sql})"


def castable_sql(value: str, before: str, now: LakeType) -> str:
    """``value`` of type ``before`` as an expression that Spark casts to ``now`` as PostgreSQL casts the value itself.
    Null if PostgreSQL refuses that and Spark would not.

    PostgreSQL rounds to integers, floats to the even one of two that are equally near; it makes a numeric of the digits
    of a float that are certain, DBL_DIG and FLT_DIG; and it takes no finite value for an infinity, or for 0. Bytes
    become the text that it prints: Spark would take them for a text, which nobody can read if they are no UTF-8.
    """
    if (before, now.kind) == ("binary", LakeKind.STRING):
        return f"concat('\\\\x', lower(hex({value})))"
    if now.kind in _INTEGERS and before.startswith("decimal"):
        return f"round({value})"
    if now.kind in _INTEGERS and before in _DIGITS:
        return f"rint({value})"
    if now.kind is LakeKind.DECIMAL and before in _DIGITS:
        return f"format_string('%.{_DIGITS[before] - 1}e', {value})"
    if (before, now.kind) == ("double", LakeKind.FLOAT):
        narrow = f"CAST({value} AS float)"
        return f"CASE WHEN {narrow} = {value} OR abs({narrow}) NOT IN (0, float('infinity')) THEN {value} END"
    return value


def _require_fitting(spark: SparkSession, path: str, shape: TableShape, held: Mapping[int, DeltaColumn]) -> None:
    pairs = [(held[column.attnum], column) for column in shape.columns if column.attnum in held]
    for before, now in pairs:
        if before.sql != now.lake_type.sql and _has_misfits(spark, path, before, now):
            raise UnrepresentableError(
                f"column {now.name} was {before.sql}, and {now.lake_type.sql} does not hold all values of earlier rows",
                hint="give it its type back at the source; or move the table's folder away: the next sync begins it"
                " without earlier rows",
            )


def _has_misfits(spark: SparkSession, path: str, before: DeltaColumn, now: LakeColumn) -> bool:
    """Also if no value of the one type is cast to the other."""
    from pyspark.errors import AnalysisException

    name = quoted(before.name)
    value = castable_sql(name, before.sql, now.lake_type)
    lost = f"{name} IS NOT NULL AND try_cast({value} AS {now.lake_type.sql}) IS NULL"
    try:
        return not table_at(spark, path).where(lost).isEmpty()
    except AnalysisException:
        return True


def _soft_deleted(rows: DataFrame, table_rows: DataFrame, shape: TableShape, form: Form, moment: Moment) -> DataFrame:
    """Rows that the source no longer has are marked as deleted at ``moment``, unless they already were."""
    from pyspark.sql import functions as fn

    *commits, deleted = own_columns(form)
    joined = _joined(rows, table_rows, shape, form)
    is_there = fn.col("is_there").isNotNull()
    values = (
        fn.when(is_there, fn.col(value(i))).otherwise(fn.col(_earlier_value(i))).alias(column.name)
        for i, column in enumerate(shape.columns)
    )
    at = fn.when(~is_there, fn.coalesce(fn.col(deleted.net), fn.expr(moment.sql)))
    was_deleted = ~is_there & fn.col(deleted.net).isNotNull()
    written = (
        fn.when(was_deleted, fn.col(each.net)).otherwise(fn.expr(_since(each, moment))).alias(each.name)
        for each in commits
    )
    return joined.select(*values, *written, at.alias(deleted.name))


def _history(rows: DataFrame, table_rows: DataFrame, shape: TableShape, moment: Moment) -> DataFrame:
    """An open version stays open if the source has an equal row. If not, it ends, and the source's row begins as a new
    version."""
    from pyspark.sql import functions as fn

    columns = mode_columns("history")
    from_lsn, from_at, to_lsn, to_at = columns
    is_open = fn.col(quoted(to_lsn.name)).isNull()
    joined = _joined(rows, table_rows.where(is_open), shape, Form("history"))
    is_there, was_there = fn.col("is_there").isNotNull(), fn.col("was_there").isNotNull()
    equal = reduce(
        and_,
        (
            printed(value(i), column).eqNullSafe(printed(_earlier_value(i), column))
            for i, column in enumerate(shape.columns)
        ),
    )
    stays = is_there & was_there & equal
    sides = joined.withColumn("stays", stays).withColumn("side", fn.explode(fn.array(fn.lit("held"), fn.lit("new"))))
    is_held = fn.col("side") == "held"
    sides = sides.where((is_held & was_there) | (~is_held & is_there & ~fn.col("stays")))
    values = (
        fn.when(is_held, fn.col(_earlier_value(i))).otherwise(fn.col(value(i))).alias(column.name)
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
    return table_rows.where(~is_open).unionByName(versions)


def _joined(rows: DataFrame, table_rows: DataFrame, shape: TableShape, form: Form) -> DataFrame:
    """One row per key: the source's values if it ``is_there``, and the table's values if it ``was_there``."""
    from pyspark.sql import functions as fn

    new = rows.select(
        *(fn.col(quoted(column.name)).alias(value(i)) for i, column in enumerate(shape.columns)),
        fn.lit(True).alias("is_there"),
    )
    old = table_rows.select(
        *(fn.col(quoted(column.name)).alias(_earlier_value(i)) for i, column in enumerate(shape.columns)),
        *(fn.col(quoted(column.name)).alias(column.net) for column in own_columns(form)),
        fn.lit(True).alias("was_there"),
    )
    same_key = reduce(and_, (fn.col(value(i)) == fn.col(_earlier_value(i)) for i in shape.key_indices))
    return new.join(old, same_key, "full_outer")


def _earlier_value(index: int) -> str:
    return f"h{index}"
