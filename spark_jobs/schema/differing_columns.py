"""The columns in which a table of the lake differs from its source, as ``on_schema_change`` says, by attribute number.

Every commit to the table records them, so that nobody has to compare the lake with the source to learn of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spark_jobs.errors import RefusedChangeError, new_snapshot
from spark_jobs.options.table_mode import Mode, holds_changes
from spark_jobs.schema.column_changes import DeltaColumn
from spark_jobs.schema.relation_facts import RelationFacts
from spark_jobs.schema.reserved_columns import columns_alike
from spark_jobs.schema.table_shape import LakeColumn, TableShape


@dataclass(frozen=True)
class NamedColumn:
    attnum: int
    attname: str


@dataclass(frozen=True)
class DifferingColumns:
    """``ignored``: columns that were added at the source and are not in the lake. ``kept``: columns that were dropped
    at the source and kept in the lake."""

    ignored: tuple[NamedColumn, ...] = ()
    kept: tuple[NamedColumn, ...] = ()

    @classmethod
    def of(cls, fields: Mapping[str, Any] | None) -> DifferingColumns:
        """``fields``: as ``asdict`` gives them; None, as older versions have it, if there are no such columns."""
        return cls(**{name: tuple(NamedColumn(**each) for each in columns) for name, columns in (fields or {}).items()})

    def __bool__(self) -> bool:
        return self != SAME_COLUMNS

    @property
    def ignored_numbers(self) -> frozenset[int]:
        return frozenset(column.attnum for column in self.ignored)

    @property
    def kept_numbers(self) -> frozenset[int]:
        return frozenset(column.attnum for column in self.kept)

    @property
    def words(self) -> tuple[str, ...]:
        """One phrase per column."""
        return self.words_since(SAME_COLUMNS)

    def words_since(self, before: DifferingColumns) -> tuple[str, ...]:
        """One phrase per column that differs otherwise than ``before``. That a column is kept no longer says the phrase
        of its being dropped."""
        kept = (column.attname for column in self.kept if column not in before.kept)
        return (*_ignored_words(before.ignored, self.ignored), *(f"{name} was dropped and is kept" for name in kept))


SAME_COLUMNS = DifferingColumns()


def _ignored_words(before: Sequence[NamedColumn], after: Sequence[NamedColumn]) -> Iterator[str]:
    known = {column.attnum: column.attname for column in before}
    for column in after:
        name = known.pop(column.attnum, None)
        if name is None:
            yield f"{column.attname} was added and is ignored"
        elif name != column.attname:
            yield f"{name}, which is ignored, was renamed to {column.attname}"
    yield from (f"{name} is no longer ignored" for name in known.values())


def shape_in_lake(
    shape: TableShape, ignored: Collection[int], kept: Sequence[LakeColumn] = (), mode: Mode = "mirror"
) -> tuple[TableShape, DifferingColumns]:
    """``shape`` as the lake holds it in ``mode``: without the columns ``ignored``, by number, and with those ``kept``.

    Raises RefusedChangeError where that is impossible: changes find their row by a column that is ignored, or by all
    columns, of which they lack the kept ones; no column is left; or a kept column's name belongs to another one.
    """
    left_out = tuple(column for column in shape.columns if column.attnum in ignored)
    if keys := [column.name for column in left_out if column.key]:
        raise _not_ignored(shape, f"column {', '.join(keys)} is in its key now")
    if left_out and len(left_out) == len(shape.columns):
        raise _not_ignored(shape, "all its columns were added since its snapshot")
    columns = tuple(column for column in shape.columns if column not in left_out)
    if kept:
        _require_keepable(replace(shape, columns=columns), kept, mode)
    in_order = tuple(sorted((*columns, *kept), key=lambda column: column.attnum))
    return replace(shape, columns=in_order), DifferingColumns(_named(left_out), _named(kept))


def _named(columns: Iterable[LakeColumn]) -> tuple[NamedColumn, ...]:
    return tuple(NamedColumn(column.attnum, column.name) for column in columns)


def _require_keepable(shape: TableShape, kept: Sequence[LakeColumn], mode: Mode) -> None:
    names = [column.name for column in kept]
    if not shape.has_key and not holds_changes(mode):
        why = f"column {', '.join(names)} was dropped, and the table has no key by which its rows keep their values"
        raise _not_kept(shape, names, why)
    alike = columns_alike([*names, *(column.name for column in shape.columns)])
    if clashes := [name for name in names if name in alike]:
        raise _not_kept(shape, clashes, f"the dropped column {', '.join(clashes)} has the name of another column now")


def added_since(facts: RelationFacts, lake_columns: Sequence[DeltaColumn], *, by_number: bool) -> frozenset[int]:
    """The numbers of the source's columns that a table with ``lake_columns`` lacks. ``by_number``: the table was
    made from this very source table; otherwise numbers mean nothing, and columns with the same name are the same."""
    numbers, names = {column.attnum for column in lake_columns}, {column.name for column in lake_columns}
    by_number = by_number and None not in numbers
    return frozenset(
        column.attnum
        for column in facts.columns
        if (column.attnum not in numbers if by_number else column.attname not in names)
    )


def _not_ignored(shape: TableShape, why: str) -> RefusedChangeError:
    return RefusedChangeError(
        f"{shape.name} stops: {why}, and on_schema_change says add: ignore",
        hint="write on_schema_change: {add: follow} for this table and sync again",
    )


def _not_kept(shape: TableShape, names: Sequence[str], why: str) -> RefusedChangeError:
    return RefusedChangeError(
        f"{shape.name} stops: {why}, and on_schema_change says drop: keep",
        hint=f"to give up the values of {', '.join(names)}, {new_snapshot(shape.name)}",
    )
