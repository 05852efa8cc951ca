"""A table's columns in the lake, with their types and its key: from the catalogue's facts and the columns sent."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from spark_jobs.options.column_options import OnUnrepresentable
from spark_jobs.options.table_mode import CommitColumn, Form
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.annotations import TableAnnotations
from spark_jobs.schema.lake_types import LakeKind, LakeType
from spark_jobs.schema.mode_columns import own_columns
from spark_jobs.schema.relation_facts import ColumnFacts, RelationFacts
from spark_jobs.schema.table_faults import unsent_key_fault
from spark_jobs.schema.wire_type import WireType, wire_type


@dataclass(frozen=True)
class LakeColumn:
    """One column. ``atttypid`` and ``atttypmod`` are the column's own (a domain's OID, not its base type's).

    ``wire_type``: the binary form of its values; may be omitted for a built-in type. ``missing``: the column's value in
    rows that are older than the column (``attmissingval``), as PostgreSQL prints it. ``on_unrepresentable``: the
    configuration's policy for this column. ``dropped``: the source has it no longer, so a change may lack it: then an
    inserted row has null there, and an updated one the value that it had. ``of_commit``: not the source's; it says
    which commit wrote the row.
    """

    name: str
    attnum: int
    lake_type: LakeType
    key: bool
    atttypid: int = 0
    atttypmod: int = -1
    wire_type: WireType | None = None
    missing: str | None = None
    on_unrepresentable: OnUnrepresentable = "error"
    dropped: bool = False
    of_commit: bool = False

    @property
    def binary_type(self) -> WireType:
        return self.wire_type or wire_type(self.atttypid)


@dataclass(frozen=True)
class TableShape:
    """A table as the lake holds it, under ``name``. ``columns`` are in the order of their numbers, in which they are
    sent. ``shows``: the source table, where that has another name.

    ``leaf_identities``: see ``RelationFacts``; empty unless the table is partitioned. Old tuples of its rows hold what
    the leaf's identity says; its Relation messages, and the letter of an old tuple, show the root's identity, which has
    no meaning. ``annotations``: what the source says about it, where that is to be written, too.
    """

    relid: int
    name: QualifiedName
    columns: tuple[LakeColumn, ...]
    leaf_identities: tuple[tuple[str, ...] | None, ...] = ()
    annotations: TableAnnotations | None = field(default=None, compare=False, repr=False)
    shows: QualifiedName | None = None

    @classmethod
    def of(
        cls,
        facts: RelationFacts,
        *,
        name: QualifiedName | None = None,
        stored: bool = False,
        sent: Collection[int] | None = None,
    ) -> TableShape:
        """The table with the columns in ``sent``, by number. If that is None, as for a snapshot, with all except
        generated ones, as pgoutput sends them; with ``stored``, with all except virtual ones. ``name``: in the lake;
        None: the source's.

        Raises PreconditionError if a key column is not among them.
        """
        kinds = ("", "s") if stored else ("",)
        columns = tuple(
            _lake_column(column, facts)
            for column in sorted(facts.columns, key=lambda column: column.attnum)
            if (column.attgenerated in kinds if sent is None else column.attnum in sent)
        )
        if fault := unsent_key_fault(facts, [column.name for column in columns]):
            raise fault
        shows = facts.name if name not in (None, facts.name) else None
        return cls(facts.relid, name or facts.name, columns, facts.leaf_identities, shows=shows)

    @property
    def relation(self) -> QualifiedName:
        """The source table."""
        return self.shows or self.name

    def with_commit_columns(self, names: Iterable[CommitColumn]) -> TableShape:
        """The table as it is written: these columns follow the source's."""
        own = own_columns(Form(commit_columns=tuple(names)))
        columns = (LakeColumn(each.name, 0, LakeType(LakeKind(each.sql)), False, of_commit=True) for each in own)
        return replace(self, columns=(*self.columns, *columns))

    @property
    def source_columns(self) -> tuple[LakeColumn, ...]:
        return of_source(self.columns)

    @property
    def has_key(self) -> bool:
        """Whether it has a key. Without one, rows are matched by all their values, and several may be equal."""
        return any(column.key for column in self.columns)

    @property
    def key_indices(self) -> tuple[int, ...]:
        """The indices of the key's columns, in column order."""
        return tuple(index for index, column in enumerate(self.columns) if column.key)


def of_source(columns: Iterable[LakeColumn]) -> tuple[LakeColumn, ...]:
    """Those of the columns that are written that the source has too."""
    return tuple(column for column in columns if not column.of_commit)


def _lake_column(column: ColumnFacts, facts: RelationFacts) -> LakeColumn:
    return LakeColumn(
        column.attname,
        column.attnum,
        column.lake_type,
        column.attname in facts.key,
        column.atttypid,
        column.atttypmod,
        replace(wire_type(column.base_typid, facts.types), name=column.typname),
        column.attmissingval,
        column.on_unrepresentable,
    )
