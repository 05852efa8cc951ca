"""The MERGE of each mode, as text. In ``soft_delete`` and ``history`` no row is deleted, rows get the time when they
ended.

See ``merge_sql`` for the aliases ``t`` and ``s``.
"""

from __future__ import annotations

from spark_jobs.delta.table import delta_identifier
from spark_jobs.options.table_mode import Mode, has_versions, keeps_past
from spark_jobs.schema.mode_columns import (
    COMMIT_LSN,
    COMMIT_TIME,
    DELETED_AT,
    VALID_TO,
    VALID_TO_LSN,
    mode_columns,
)
from spark_jobs.schema.moment import Moment
from spark_jobs.schema.net_columns import DELETE, OPERATION, NetColumns, unchanged, value
from spark_jobs.schema.table_shape import TableShape
from spark_jobs.writers.merge_sql import (
    MOVED,
    KeyRange,
    inserted_values,
    inserting,
    kept_values_query,
    key_matches,
    left_key_matches,
    merge_statement,
    merging,
    missing_row,
    quoted,
    updated_values,
)
from spark_jobs.writers.net_source import NetSource


def named_mode_columns(mode: Mode) -> tuple[str, ...]:
    """One expression for each column that the mode adds to the source's, with its name and type in the table."""
    return tuple(f"CAST({column.net} AS {column.sql}) AS {quoted(column.name)}" for column in mode_columns(mode))


def merge_of_mode(path: str, net: NetSource) -> str:
    columns = net.columns
    if has_versions(columns.mode):
        return history_statement(path, columns, net.key_range, net.ended)
    if keeps_past(columns.mode):
        return soft_delete_statement(path, columns, net.key_range, net.ended)
    return merge_statement(path, columns, net.key_range, among=net.among)


def kept_values(path: str, columns: NetColumns) -> str | None:
    """The query that fills in values which were not sent; None if there are none, or the MERGE itself keeps them."""
    if has_versions(columns.mode):
        return open_values_query(path, columns) if columns.unchanged else None
    return kept_values_query(path, columns) if columns.unchanged and columns.old_keys else None


def soft_delete_statement(path: str, columns: NetColumns, key_range: KeyRange | None, ended: Moment | None) -> str:
    """The MERGE of the view ``net_change``. ``ended``: a TRUNCATE, which deleted all rows that are not in the view."""
    shape, deleted = columns.shape, quoted(DELETED_AT.name)
    marked = [f"t.{deleted} = s.{DELETED_AT.net}", *_commits(shape)]
    updates = [*updated_values(columns), f"t.{deleted} = s.{DELETED_AT.net}"]
    names, values = inserted_values(columns)
    clauses = [
        f"WHEN MATCHED AND s.{OPERATION} = {DELETE} THEN UPDATE SET {', '.join(marked)}",
        f"WHEN MATCHED THEN UPDATE SET {', '.join(updates)}",
        inserting([*names, deleted], [*values, f"s.{DELETED_AT.net}"]),
    ]
    if ended is not None:
        live = f"t.{deleted} IS NULL"
        ends = ", ".join([f"t.{deleted} = {ended.sql}", *_commits(shape, ended)])
        clauses.append(f"WHEN NOT MATCHED BY SOURCE AND {live} THEN UPDATE SET {ends}")
    return merging(path, key_matches(shape, None if ended else key_range), clauses)


def history_statement(path: str, columns: NetColumns, key_range: KeyRange | None, ended: Moment | None) -> str:
    """The MERGE of the view ``net_change``: versions that end and versions that begin. ``ended``: a TRUNCATE, which
    ended all open versions that are not in the view."""
    shape = columns.shape
    is_open = f"t.{quoted(VALID_TO_LSN.name)} IS NULL"
    matches = [f"s.{OPERATION} = {DELETE}", is_open, *key_matches(shape, None if ended else key_range)]
    lsn, at = f"t.{quoted(VALID_TO_LSN.name)}", f"t.{quoted(VALID_TO.name)}"
    marked = [f"{lsn} = s.{VALID_TO_LSN.net}", f"{at} = s.{VALID_TO.net}", *_commits(shape)]
    kept = mode_columns("history")
    names = [quoted(name) for name in (*(c.name for c in shape.columns), *(c.name for c in kept))]
    values = [f"s.{name}" for name in (*map(value, range(len(shape.columns))), *(c.net for c in kept))]
    clauses = [f"WHEN MATCHED THEN UPDATE SET {', '.join(marked)}", inserting(names, values)]
    if ended is not None:
        ends = ", ".join([f"{lsn} = {int(ended.lsn)}", f"{at} = {ended.sql}", *_commits(shape, ended)])
        clauses.append(f"WHEN NOT MATCHED BY SOURCE AND {is_open} THEN UPDATE SET {ends}")
    return merging(path, matches, clauses)


def _commits(shape: TableShape, ended: Moment | None = None) -> list[str]:
    """The assignments of the commit columns: from the net change, or of the TRUNCATE that ``ended`` the row."""
    of = {} if ended is None else {COMMIT_LSN.name: str(int(ended.lsn)), COMMIT_TIME.name: ended.sql}
    return [
        f"t.{quoted(column.name)} = {of.get(column.name, f's.{value(i)}')}"
        for i, column in enumerate(shape.columns)
        if column.of_commit
    ]


def open_values_query(path: str, columns: NetColumns) -> str:
    """The net change of the view ``moved_rows``; kept values are filled in from the version that was open before."""
    shape, kept = columns.shape, columns.unchanged
    keeps = " OR ".join(f"s.{unchanged(i)}" for i in kept)
    match = " AND ".join([*left_key_matches(columns), f"t.{quoted(VALID_TO_LSN.name)} IS NULL"])
    is_there = f"t.{quoted(shape.columns[shape.key_indices[0]].name)} IS NOT NULL"
    named = [f"s.{OPERATION}"]
    for i, column in enumerate(shape.columns):
        old_value = f"CASE WHEN {is_there} THEN t.{quoted(column.name)} ELSE {missing_row(shape)} END"
        named.append(
            f"CASE WHEN s.{unchanged(i)} THEN {old_value} ELSE s.{value(i)} END AS {value(i)}"
            if i in kept
            else f"s.{value(i)}"
        )
    named += [f"s.{column.net}" for column in mode_columns("history")]
    joined = f"{MOVED} AS s\nLEFT JOIN {delta_identifier(path)} AS t ON ({keeps}) AND {match}"
    return f"SELECT {', '.join(named)}\nFROM {joined}"
