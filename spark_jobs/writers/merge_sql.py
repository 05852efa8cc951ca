"""Spark SQL as text: quoting, and the one MERGE of a table and range.

Users' columns are always qualified with ``t.`` and ours with ``s.``. Spark resolves a qualified name as a column of
that alias before it looks for a struct field, so users may have columns named ``s``, ``op`` or ``s.v0``.

https://docs.delta.io/latest/delta-update.html#upsert-into-a-table-using-merge
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from spark_jobs.delta.table import delta_identifier
from spark_jobs.schema.lake_types import FLOATS, LakeKind
from spark_jobs.schema.mode_columns import mode_columns
from spark_jobs.schema.net_columns import DELETE, OPERATION, UPSERT, NetColumns, old_key, unchanged, value
from spark_jobs.schema.table_shape import LakeColumn, TableShape
from spark_jobs.spark.causes import MISSING_ROW

# the name of the temporary view that holds the net change: one row per key
NET_CHANGE = "net_change"
# and of the one whose rows still lack values that were not sent
MOVED = "moved_rows"

# types by whose values every reader can skip files, whoever has written the statistics
RANGED = (LakeKind.SMALLINT, LakeKind.INT, LakeKind.BIGINT, LakeKind.DATE)


@dataclass(frozen=True)
class KeyRange:
    """The least and the greatest value of the ``ranged_key`` column in a net change; for a table without a key, only
    among the rows that go."""

    low: int | date
    high: int | date


def quoted(identifier: str) -> str:
    """One identifier, or the path of a table, in backticks."""
    return "`" + identifier.replace("`", "``") + "`"


def ranged_key(shape: TableShape) -> int | None:
    """The index of the leading key column if Delta can skip files by a literal range on its type, else None. For a
    table without a key, the index of the first column of such a type."""
    places = shape.key_indices[:1] or range(len(shape.source_columns))
    return next((place for place in places if shape.columns[place].lake_type.kind in RANGED), None)


def merge_statement(path: str, columns: NetColumns, key_range: KeyRange | None, *, among: str = "") -> str:
    """The MERGE of the view ``net_change`` into the table at ``path``.

    Where a column is unchanged, the table keeps its value. Such a row must be in the table; if it is not, the statement
    fails instead of storing a null. ``among``: a condition that holds for every row of the table that the net change
    can match.
    """
    clauses = [f"WHEN MATCHED AND s.{OPERATION} = {DELETE} THEN DELETE"]
    if updates := updated_values(columns):  # a table that is all key has nothing to update
        clauses.append(f"WHEN MATCHED THEN UPDATE SET {', '.join(updates)}")
    clauses.append(inserting(*inserted_values(columns)))
    return merging(path, [*key_matches(columns.shape, key_range), *filter(None, [among])], clauses)


def merging(path: str, matches: Sequence[str], clauses: Sequence[str]) -> str:
    """The MERGE of the view ``net_change`` into the table at ``path``, by these conditions."""
    head = f"MERGE INTO {delta_identifier(path)} AS t", f"USING {NET_CHANGE} AS s", f"ON {' AND '.join(matches)}"
    return "\n".join((*head, *clauses))


def inserting(names: Sequence[str], values: Sequence[str]) -> str:
    """The clause that inserts upserts without a match."""
    inserted = f"INSERT ({', '.join(names)}) VALUES ({', '.join(values)})"  # noqa: S608
    return f"WHEN NOT MATCHED AND s.{OPERATION} = {UPSERT} THEN {inserted}"


def key_matches(shape: TableShape, key_range: KeyRange | None) -> list[str]:
    """The conditions under which a row of the table matches one of the net change."""
    matches = [f"t.{quoted(shape.columns[i].name)} = s.{value(i)}" for i in shape.key_indices]
    return matches if key_range is None else [*matches, in_range(shape, key_range)]


def updated_values(columns: NetColumns) -> list[str]:
    """The assignments of an update: every column except the key's, unless it is a float: 0 matches -0."""
    shape, names = columns.shape, [quoted(column.name) for column in columns.shape.columns]
    return [
        f"t.{name} = CASE WHEN s.{unchanged(i)} THEN t.{name} ELSE s.{value(i)} END"
        if i in columns.unchanged
        else f"t.{name} = s.{value(i)}"
        for i, name in enumerate(names)
        if i not in shape.key_indices or shape.columns[i].lake_type.kind in FLOATS
    ]


def inserted_values(columns: NetColumns) -> tuple[list[str], list[str]]:
    """The names of the columns, and the values inserted into them."""
    shape, kept = columns.shape, columns.unchanged
    values = [
        f"CASE WHEN s.{unchanged(i)} THEN {missing_row(shape)} ELSE s.{value(i)} END" if i in kept else f"s.{value(i)}"
        for i in range(len(shape.columns))
    ]
    return [quoted(column.name) for column in shape.columns], values


def in_range(shape: TableShape, key_range: KeyRange) -> str:
    """The condition for the table's rows in the range. Delta skips files only by literals, not by the source's
    values."""
    place = ranged_key(shape)
    assert place is not None
    low, high = _literal(key_range.low), _literal(key_range.high)
    return f"t.{quoted(shape.columns[place].name)} BETWEEN {low} AND {high}"


def kept_values_query(path: str, columns: NetColumns) -> str:
    """The net change of the view ``moved_rows``; where a row's key changed, its kept values are filled in from the row
    with the old key, which is null where the key did not change."""
    shape = columns.shape
    has_moved = " OR ".join(f"s.{old_key(i)} IS NOT NULL" for i in columns.old_keys)
    match = " AND ".join(left_key_matches(columns))
    first_key = quoted(shape.columns[shape.key_indices[0]].name)
    has_row = f"(({has_moved}) AND t.{first_key} IS NOT NULL)"
    named = [f"s.{OPERATION}"]
    for i, column in enumerate(shape.columns):
        if i in columns.unchanged:
            filled = f"CASE WHEN s.{unchanged(i)} AND {has_row} THEN t.{quoted(column.name)} ELSE s.{value(i)} END"
            named.append(f"{filled} AS {value(i)}")
            named.append(f"(s.{unchanged(i)} AND NOT {has_row}) AS {unchanged(i)}")
        else:
            named.append(f"s.{value(i)}")
    named += [f"s.{column.net}" for column in mode_columns(columns.mode)]
    return (
        f"SELECT {', '.join(named)}\nFROM {MOVED} AS s\n"
        f"LEFT JOIN {delta_identifier(path)} AS t ON ({has_moved}) AND {match}"
    )


def left_key_matches(columns: NetColumns) -> list[str]:
    """The conditions under which a row of the table is the one whose values a row of the net change keeps."""
    return [
        f"t.{quoted(columns.shape.columns[i].name)} = "
        + (f"coalesce(s.{old_key(i)}, s.{value(i)})" if i in columns.old_keys else f"s.{value(i)}")
        for i in columns.shape.key_indices
    ]


def named_columns(columns: Sequence[LakeColumn]) -> tuple[str, ...]:
    """One expression per column: its value, with the name and the type of the table.

    Casting to the same type costs nothing. Over Spark Connect a string has the type ``string collate UTF8_BINARY``: the
    values are the same, but other readers refuse a Delta table with that type in its schema.
    """
    return tuple(
        f"CAST({value(i)} AS {column.lake_type.sql}) AS {quoted(column.name)}" for i, column in enumerate(columns)
    )


def missing_row(shape: TableShape) -> str:
    """An expression that fails: a change needs a row that the table does not have."""
    return f"raise_error({sql_text(f'{shape.name}: {MISSING_ROW}')})"


def sql_text(text: str) -> str:
    """A string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _literal(value: int | date) -> str:
    return f"DATE'{value.isoformat()}'" if isinstance(value, date) else str(value)
