"""Which columns a table has in the lake, with their types and its key: from the catalogue's facts and the wire."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from spark_jobs.column_options import OnUnrepresentable
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.lake_types import LakeType
from spark_jobs.schema.relation_facts import ColumnFacts, RelationFacts
from spark_jobs.schema.table_faults import unsent_key_fault
from spark_jobs.schema.wire_type import WireType, wire_type


@dataclass(frozen=True)
class LakeColumn:
    """One column. ``atttypid``, ``atttypmod`` are those of the column itself (a domain's OID, not its base type's).

    ``wire_type``: what its values look like in binary; it may be left out for a built-in type. ``missing``: the value,
    as PostgreSQL prints it, of rows from before the column was added (``attmissingval``). ``on_unrepresentable``: what
    the configuration says of this column alone; None: what it says of all.
    """

    name: str
    attnum: int
    lake_type: LakeType
    key: bool
    atttypid: int = 0
    atttypmod: int = -1
    wire_type: WireType | None = None
    missing: str | None = None
    on_unrepresentable: OnUnrepresentable | None = None

    @property
    def binary_type(self) -> WireType:
        return self.wire_type or wire_type(self.atttypid)


@dataclass(frozen=True)
class TableShape:
    """A table as the lake holds it; ``columns`` in the order of their numbers, which is that of the wire.

    ``has_leaves``: a partitioned table, whose rows come with the replica identities of its leaves; its Relation
    messages show its own, which says nothing.
    """

    relid: int
    name: QualifiedName
    columns: tuple[LakeColumn, ...]
    has_leaves: bool = False

    @classmethod
    def of(cls, facts: RelationFacts, *, stored: bool = False, sent: Collection[int] | None = None) -> TableShape:
        """The table's columns that are ``sent``, by number; where that is not known, for a snapshot, all but generated
        ones, as pgoutput does; with ``stored`` all but virtual ones.

        Raises PreconditionError when a column of the key is not among them.
        """
        kinds = ("", "s") if stored else ("",)
        columns = tuple(
            _lake_column(column, facts)
            for column in sorted(facts.columns, key=lambda column: column.attnum)
            if (column.attgenerated in kinds if sent is None else column.attnum in sent)
        )
        if fault := unsent_key_fault(facts, [column.name for column in columns]):
            raise fault.error
        return cls(facts.relid, facts.name, columns, bool(facts.leaf_identities))

    @property
    def has_key(self) -> bool:
        """Without one its rows are found whole, and several may be equal."""
        return any(column.key for column in self.columns)

    @property
    def key_indices(self) -> tuple[int, ...]:
        """Places of the key's columns, in column order."""
        return tuple(index for index, column in enumerate(self.columns) if column.key)


def _lake_column(column: ColumnFacts, facts: RelationFacts) -> LakeColumn:
    is_key = column.attname in facts.key
    return LakeColumn(
        column.attname,
        column.attnum,
        column.lake_type,
        is_key,
        column.atttypid,
        column.atttypmod,
        replace(wire_type(column.base_typid, facts.types), name=column.typname),
        column.attmissingval,
        None if is_key else column.on_unrepresentable,
    )
