"""Which columns a table has in the lake, with their types and its key: from the catalogue's facts and the wire."""

from __future__ import annotations

from dataclasses import dataclass, replace

from spark_jobs.errors import PreconditionError, SchemaChangeError
from spark_jobs.logicalrep.relation import Relation
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.lake_types import LakeType
from spark_jobs.schema.relation_facts import ColumnFacts, RelationFacts
from spark_jobs.schema.wire_type import WireType, wire_type


@dataclass(frozen=True)
class LakeColumn:
    """One column. ``atttypid``, ``atttypmod`` are those of the column itself (a domain's OID, not its base type's).

    ``wire_type``: what its values look like in binary; it may be left out for a built-in type.
    """

    name: str
    attnum: int
    lake_type: LakeType
    key: bool
    atttypid: int = 0
    atttypmod: int = -1
    wire_type: WireType | None = None

    @property
    def binary_type(self) -> WireType:
        return self.wire_type or wire_type(self.atttypid)


@dataclass(frozen=True)
class TableShape:
    """A table as the lake holds it; ``columns`` in the order of the wire.

    ``has_leaves``: a partitioned table, whose rows come with the replica identities of its leaves; its Relation
    messages show its own, which says nothing.
    """

    relid: int
    name: QualifiedName
    columns: tuple[LakeColumn, ...]
    has_leaves: bool = False

    @classmethod
    def of(cls, facts: RelationFacts, relation: Relation | None = None, *, stored: bool = False) -> TableShape:
        """The columns of a Relation message in wire order; without one, for a snapshot, those of the catalogue in
        ``attnum`` order. Generated columns are left out, as pgoutput does; with ``stored`` the virtual ones only.

        Raises PreconditionError when no column set identifies a row, SchemaChangeError when the catalogue's facts
        are not those of this message.
        """
        name = facts.name
        if relation is None:
            sent = ("", "s") if stored else ("",)
            found = [column for column in sorted(facts.columns, key=lambda c: c.attnum) if column.attgenerated in sent]
        else:
            found = _on_the_wire(facts, relation)
        columns = tuple(_lake_column(column, facts) for column in found)
        _require_key(facts, columns)
        return cls(facts.relid, name, columns, bool(facts.leaf_identities))

    @property
    def key_indices(self) -> tuple[int, ...]:
        """Places of the key's columns, in column order."""
        return tuple(index for index, column in enumerate(self.columns) if column.key)


def _on_the_wire(facts: RelationFacts, relation: Relation) -> list[ColumnFacts]:
    by_name = {column.attname: column for column in facts.columns}
    unknown = [column.name for column in relation.columns if column.name not in by_name]
    if relation.relid != facts.relid or unknown:
        raise SchemaChangeError(
            f"{facts.name}: the landed catalogue facts are not those of the Relation message"
            f" (relid {facts.relid} and {relation.relid}, columns not known: {', '.join(unknown) or 'none'})",
            hint="take a new snapshot of this table",
        )
    return [by_name[column.name] for column in relation.columns]


def _lake_column(column: ColumnFacts, facts: RelationFacts) -> LakeColumn:
    return LakeColumn(
        column.attname,
        column.attnum,
        column.lake_type,
        column.attname in facts.key,
        column.atttypid,
        column.atttypmod,
        replace(wire_type(column.base_typid, facts.types), name=column.typname),
    )


def _require_key(facts: RelationFacts, columns: tuple[LakeColumn, ...]) -> None:
    names = {column.name for column in columns}
    missing = [name for name in facts.key if name not in names]
    if not facts.key and facts.leaf_identities:
        raise PreconditionError(
            f"{facts.name} has no key that each of its partitions sends with its changes",
            hint="give root and partitions the same primary key, or the same REPLICA IDENTITY",
        )
    if not facts.key:
        raise PreconditionError(
            f"{facts.name} has no usable key (replica identity {facts.relreplident!r}, no primary key that fits)",
            hint="add a primary key, or set REPLICA IDENTITY USING INDEX",
        )
    if missing:
        raise PreconditionError(
            f"{facts.name}: key column {', '.join(missing)} is not published",
            hint="add it to the publication's column list",
        )
