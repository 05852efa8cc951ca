"""Regions as conditions: in SQL for PostgreSQL, from which their rows are read, and for Spark and Arrow, by which they
are replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, eq, ge, gt, le, lt, or_
from typing import Generic, TypeVar

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
_OPERATORS = {">": gt, ">=": ge, "<": lt, "<=": le, "=": eq}
_Name = Callable[[BoundColumn], str]
Condition = TypeVar("Condition")


@dataclass(frozen=True)
class _Language(Generic[Condition]):
    """How conditions are said. ``compare``: of a column, by an operator of SQL, with a value. ``first_or_next``: the
    first one, or the second and the third."""

    compare: Callable[[str, BoundColumn, str], Condition]
    among: Callable[[BoundColumn, Sequence[str]], Condition]
    always: Callable[[bool], Condition]
    first_or_next: Callable[[Condition, Condition, Condition], Condition]
    all_of: Callable[[Iterable[Condition]], Condition]
    any_of: Callable[[Iterable[Condition]], Condition]


def in_postgres(regions: Sequence[Region], column: _Name) -> str:
    """The condition for the rows of any of these regions, whose columns are never null. ``column`` returns the
    expression for a column."""
    return _rows_of(regions, _sql(column, _postgres_literal))


def in_spark(regions: Sequence[Region], column: _Name) -> str:
    """The condition for the same rows in Spark. It uses only literals, so that Delta can skip files by it."""
    return _rows_of(regions, _sql(column, _spark_literal))


def in_arrow(regions: Sequence[Region], column: _Name) -> pc.Expression:
    """The condition for the same rows of an Arrow table. ``column`` returns the name of a column, which has the type
    that the lake has for it."""
    arrow = _Language[pc.Expression](
        compare=lambda operator, of, value: _OPERATORS[operator](pc.field(column(of)), _arrow_value(value, of.typid)),
        among=lambda of, values: pc.field(column(of)).isin(
            pa.array([_arrow_value(value, of.typid) for value in values])
        ),
        always=pc.scalar,
        first_or_next=lambda beyond, equal, rest: beyond | (equal & rest),
        all_of=lambda conditions: reduce(and_, conditions, pc.scalar(True)),
        any_of=lambda conditions: reduce(or_, conditions, pc.scalar(False)),
    )
    return _rows_of(regions, arrow)


def _sql(column: _Name, literal: Callable[[str, int], str]) -> _Language[str]:
    return _Language(
        compare=lambda operator, of, value: f"{column(of)} {operator} {literal(value, of.typid)}",
        among=lambda of, values: f"{column(of)} IN ({', '.join(literal(value, of.typid) for value in values)})",
        always=lambda is_so: "true" if is_so else "false",
        first_or_next=lambda beyond, equal, rest: f"({beyond} OR ({equal} AND {rest}))",
        all_of=lambda conditions: f"({' AND '.join(conditions)})",
        any_of=" OR ".join,
    )


def _rows_of(regions: Sequence[Region], language: _Language[Condition]) -> Condition:
    return language.any_of(
        language.all_of(each for bound in region.bounds for each in _within(bound, language)) for region in regions
    )


def _within(bound: Bound, language: _Language[Condition]) -> Iterator[Condition]:
    if bound.lower is None or bound.upper is None:
        yield language.among(bound.columns[0], bound.listed)
    else:
        yield _beyond(bound, bound.lower, ">", language)
        yield _beyond(bound, bound.upper, "<", language)


def _beyond(bound: Bound, end: RangeEnd, operator: str, language: _Language[Condition]) -> Condition:
    """The condition that a row is beyond an end of the range, compared column by column. A row that equals the end in
    all its values is beyond a lower end, unless MAXVALUE follows, and beyond an upper end only if MAXVALUE follows."""
    is_equal_beyond = (end.beyond == "max") != (operator == ">")
    compared = [*zip(bound.columns, end.values, strict=False)]
    if not compared:
        return language.always(is_equal_beyond)
    condition = language.compare(operator + "=" * is_equal_beyond, *compared.pop())
    for each in reversed(compared):
        condition = language.first_or_next(language.compare(operator, *each), language.compare("=", *each), condition)
    return condition


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
