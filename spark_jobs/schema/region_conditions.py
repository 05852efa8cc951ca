"""Regions as conditions: in SQL for PostgreSQL, from which their rows are read, and for Spark and Arrow, by which they
are replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from operator import and_, gt, lt, or_

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.schema.partition_bounds import LISTED_TYPES, Bound, BoundColumn, RangeEnd, Region

# by the type's name in the lake; all others are text
_OF_SPARK = {
    **dict.fromkeys(("smallint", "int", "bigint"), "{}"),
    "date": "DATE'{}'",
    "timestamp_ntz": "TIMESTAMP_NTZ'{}'",
    "timestamp": "TIMESTAMP_LTZ'{}+00:00'",
}
_OF_ARROW = {
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "date": pa.date32(),
    "timestamp_ntz": pa.timestamp("us"),
    "timestamp": pa.timestamp("us", "UTC"),
}
_Terms = Callable[[BoundColumn], str]
_Literal = Callable[[str, int], str]


def in_postgres(regions: Sequence[Region], column: _Terms) -> str:
    """The condition for the rows of any of these regions, whose columns are never null. ``column`` returns the
    expression for a column."""
    return _any_of(regions, column, _postgres_literal)


def in_spark(regions: Sequence[Region], column: _Terms) -> str:
    """The condition for the same rows in Spark. It uses only literals, so that Delta can skip files by it."""
    return _any_of(regions, column, _spark_literal)


def in_arrow(regions: Sequence[Region], column: Callable[[BoundColumn], str]) -> pc.Expression:
    """The condition for the same rows of an Arrow table. ``column`` returns the name of a column, which has the type
    that the lake has for it."""
    return _any(_all(_bound_in_arrow(bound, column) for bound in region.bounds) for region in regions)


def _any_of(regions: Sequence[Region], column: _Terms, literal: _Literal) -> str:
    conditions = (" AND ".join(_bound(bound, column, literal) for bound in region.bounds) for region in regions)
    return " OR ".join(f"({condition})" for condition in conditions)


def _bound(bound: Bound, column: _Terms, literal: _Literal) -> str:
    if bound.lower is None or bound.upper is None:
        only = bound.columns[0]
        return f"{column(only)} IN ({', '.join(literal(value, only.typid) for value in bound.listed)})"
    ends = (
        _beyond(bound, end, operator, column, literal) for end, operator in ((bound.lower, ">"), (bound.upper, "<"))
    )
    return " AND ".join(ends)


def _beyond(bound: Bound, end: RangeEnd, operator: str, column: _Terms, literal: _Literal) -> str:
    """The condition that a row is beyond an end of the range, compared column by column. A row that equals the end in
    all its values is beyond a lower end, unless MAXVALUE follows, and beyond an upper end only if MAXVALUE follows."""
    condition = "true" if _is_equal_beyond(end, lower=operator == ">") else "false"
    for place in reversed(range(len(end.values))):
        name, value = column(bound.columns[place]), literal(end.values[place], bound.columns[place].typid)
        if condition in ("true", "false"):
            condition = f"{name} {operator}{'=' if condition == 'true' else ''} {value}"
        else:
            condition = f"({name} {operator} {value} OR ({name} = {value} AND {condition}))"
    return condition


def _bound_in_arrow(bound: Bound, column: Callable[[BoundColumn], str]) -> pc.Expression:
    if bound.lower is None or bound.upper is None:
        only = bound.columns[0]
        return pc.field(column(only)).isin(pa.array([_arrow_value(value, only.typid) for value in bound.listed]))
    return _beyond_in_arrow(bound, bound.lower, gt, column) & _beyond_in_arrow(bound, bound.upper, lt, column)


def _beyond_in_arrow(
    bound: Bound,
    end: RangeEnd,
    is_beyond: Callable[[pc.Expression, pa.Scalar], pc.Expression],
    column: Callable[[BoundColumn], str],
) -> pc.Expression:
    """See ``_beyond``."""
    condition = pc.scalar(_is_equal_beyond(end, lower=is_beyond is gt))
    for each, value in reversed([*zip(bound.columns, end.values, strict=False)]):
        field, limit = pc.field(column(each)), _arrow_value(value, each.typid)
        condition = is_beyond(field, limit) | ((field == limit) & condition)
    return condition


def _is_equal_beyond(end: RangeEnd, *, lower: bool) -> bool:
    """Whether a row that equals the end in all its values is beyond it."""
    return (end.beyond == "max") != lower


def _all(conditions: Iterable[pc.Expression]) -> pc.Expression:
    return reduce(and_, conditions, pc.scalar(True))


def _any(conditions: Iterable[pc.Expression]) -> pc.Expression:
    return reduce(or_, conditions, pc.scalar(False))


def _arrow_value(value: str, typid: int) -> pa.Scalar:
    _, name = LISTED_TYPES[typid]
    text = value + "+00:00" if name == "timestamp" else value
    return pa.scalar(text).cast(_OF_ARROW.get(name, pa.string()))


def _postgres_literal(value: str, typid: int) -> str:
    name, _ = LISTED_TYPES[typid]
    text = value + "+00" if name == "timestamptz" else value
    # our sessions pin standard_conforming_strings
    return "'" + text.replace("'", "''") + f"'::pg_catalog.{name}"


def _spark_literal(value: str, typid: int) -> str:
    _, name = LISTED_TYPES[typid]
    return _OF_SPARK.get(name, "'{}'").format(value.replace("\\", "\\\\").replace("'", "\\'"))
