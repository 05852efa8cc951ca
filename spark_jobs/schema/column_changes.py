"""DDL on a table's columns that the lake follows in place. Columns are compared by attribute number, never by name.

An added column has its missing value in all existing rows; renaming or dropping a column leaves the rows as they are.
Anything else (another type, a column that no look at the catalogue has announced) requires a new snapshot.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from spark_jobs.errors import SchemaChangeError, new_snapshot
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.options.table_mode import Mode, holds_changes
from spark_jobs.schema.lake_types import LakeType, is_widened
from spark_jobs.schema.relation_facts import RelationFacts
from spark_jobs.schema.reserved_columns import name_fault
from spark_jobs.schema.table_faults import NO_COLUMNS_REMEDY
from spark_jobs.schema.table_shape import LakeColumn, TableShape


@dataclass(frozen=True)
class DeltaColumn:
    """A column of the lake's table. ``attnum`` is None in tables that an older version created."""

    name: str
    sql: str
    attnum: int | None

    @classmethod
    def of(cls, column: LakeColumn) -> DeltaColumn:
        return cls(column.name, column.lake_type.sql, column.attnum)

    def is_widened_in(self, column: LakeColumn) -> bool:
        """Whether both are decimals and ``column`` has more digits, so that it holds every value of this one."""
        known = LakeType.of_sql(self.sql)
        return known is not None and is_widened(known, column.lake_type)


def counterparts(
    lake_columns: Sequence[DeltaColumn], columns: Iterable[LakeColumn], *, by_number: bool
) -> dict[int, DeltaColumn]:
    """By the number of each of the source's ``columns``, the lake's column that holds it. ``by_number``: whether the
    table was made from this very source table; otherwise numbers mean nothing, and columns with the same name are the
    same. So are those that have no number."""
    numbers = {column.attnum: column for column in lake_columns if by_number and column.attnum is not None}
    names = {column.name: column for column in lake_columns if not by_number or column.attnum is None}
    return {column.attnum: names[column.name] for column in columns if column.name in names} | numbers


@dataclass(frozen=True)
class ColumnChanges:
    """The changes that turn the columns of the lake's table into those of the source. ``renamed`` and ``widened`` have
    the old and the new column; a column may be in both. ``all_dropped``: none of the lake's columns remains."""

    dropped: tuple[DeltaColumn, ...] = ()
    renamed: tuple[tuple[DeltaColumn, LakeColumn], ...] = ()
    added: tuple[LakeColumn, ...] = ()
    widened: tuple[tuple[DeltaColumn, LakeColumn], ...] = ()
    all_dropped: bool = False

    def __bool__(self) -> bool:
        return bool(self.dropped or self.renamed or self.added or self.widened)

    def rewrites_rows(self, mode: Mode) -> bool:
        """Whether every file is rewritten because existing rows get a value, or one of another type, or because a Delta
        table may not lose its last column. In mode ``append`` existing rows get no values."""
        fills = not holds_changes(mode) and any(column.missing is not None for column in self.added)
        return fills or bool(self.widened) or self.all_dropped

    @property
    def words(self) -> tuple[str, ...]:
        """One phrase per column."""
        return (
            *(f"{column.name} was dropped" for column in self.dropped),
            *(f"{old.name} was renamed to {new.name}" for old, new in self.renamed),
            *(f"{column.name} {column.lake_type.sql} was added" for column in self.added),
            *(f"{new.name} {old.sql} was widened to {new.lake_type.sql}" for old, new in self.widened),
        )


def column_changes(
    lake_columns: Sequence[DeltaColumn], shape: TableShape, facts: RelationFacts, added: Collection[int], lsn: Lsn
) -> ColumnChanges:
    """The changes from ``lake_columns`` to those of ``shape``, which the source has from ``lsn`` on.

    ``facts``: those that the shape was made of. ``added``: the numbers of columns whose value in existing rows is
    known. Raises SchemaChangeError if a new snapshot is needed.
    """
    if not shape.columns:
        raise SchemaChangeError(f"{shape.name} has no columns from {lsn} on", hint=NO_COLUMNS_REMEDY)
    if any(column.attnum is None for column in lake_columns):
        _require_same(lake_columns, shape, lsn)
        return ColumnChanges()
    known = {column.attnum: column for column in lake_columns}
    differences, renamed, widened, new = [], [], [], []
    for column in shape.columns:
        old = known.pop(column.attnum, None)
        if old is None:
            new.append(column)
            if column.attnum not in added:
                differences.append(f"{column.name} {column.lake_type.sql} is new")
            continue
        if old.is_widened_in(column):
            widened.append((old, column))
        elif old.sql != column.lake_type.sql:
            differences.append(f"{old.name} was {old.sql} and is {column.lake_type.sql}")
        if old.name != column.name:
            renamed.append((old, column))
    numbers = {column.attnum for column in shape.columns}
    changes = ColumnChanges(
        tuple(known.values()), tuple(renamed), tuple(new), tuple(widened), len(known) == len(lake_columns)
    )
    shape_facts = replace(facts, columns=tuple(column for column in facts.columns if column.attnum in numbers))
    if changes and (fault := name_fault(shape_facts)):
        differences.append(f"it has {fault}")
    if differences:
        raise _other_columns(shape, differences, lsn)
    return changes


def _require_same(lake_columns: Sequence[DeltaColumn], shape: TableShape, lsn: Lsn) -> None:
    """Raises SchemaChangeError if anything differs: without numbers, added, dropped and renamed columns cannot be told
    apart."""
    lake = {column.name: column.sql for column in lake_columns}
    source = {column.name: column.lake_type.sql for column in shape.columns}
    if lake == source:
        return
    differences = [f"{name} {source[name]} is new" for name in source if name not in lake]
    differences += [f"{name} is gone" for name in lake if name not in source]
    differences += [
        f"{name} was {lake[name]} and is {source[name]}" for name in lake if source.get(name, lake[name]) != lake[name]
    ]
    raise _other_columns(shape, differences, lsn)


def _other_columns(shape: TableShape, differences: Sequence[str], lsn: Lsn) -> SchemaChangeError:
    return SchemaChangeError(
        f"{shape.name} has other columns from {lsn} on: {'; '.join(differences)}",
        hint=new_snapshot(shape.name),
    )
