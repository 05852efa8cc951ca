"""What the source says about a table and its columns: comments, types, the primary key. None of it changes a row.

https://www.postgresql.org/docs/current/sql-comment.html
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ColumnAnnotations:
    """``type``: as PostgreSQL prints it, with its modifier; of a masked column that of the source's values.
    ``primary_key``: the column's place in the primary key, from 1 on; None if it is not part of it. ``comment`` is
    empty if there is none."""

    attnum: int
    type: str
    primary_key: int | None = None
    comment: str = ""
    masked: bool = False


@dataclass(frozen=True)
class TableAnnotations:
    """``columns``: all that are sent. ``rows``: the comments' rows of ``pg_description``, each as column number and
    ``xmin``, so that a look which reads no comment sees that one was changed."""

    comment: str
    columns: tuple[ColumnAnnotations, ...]
    rows: str = field(default="", compare=False)

    @classmethod
    def of(cls, fields: Mapping[str, Any], masked: Collection[int]) -> TableAnnotations:
        """``fields``: the JSON that ``spark_jobs.postgres.fingerprints`` asks for. ``masked``: the masked columns'
        numbers. Raises KeyError, TypeError or ValueError."""
        columns = tuple(
            ColumnAnnotations(attnum, type_, place, comment or "", attnum in masked)
            for attnum, type_, place, comment in fields["columns"]
        )
        return cls(fields["comment"] or "", columns, fields["rows"])

    @property
    def has_comments(self) -> bool:
        return bool(self.comment) or any(column.comment for column in self.columns)

    @property
    def by_number(self) -> Mapping[int, ColumnAnnotations]:
        return {column.attnum: column for column in self.columns}
