"""What the catalogue knows of a table, frozen: landed in the change log, so that decoding asks no live catalogue."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from spark_jobs.column_options import OnUnrepresentable
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.lake_types import LakeType, lake_type

# FirstGenbkiObjectId: from here on initdb gives out OIDs (to the types of information_schema, say). They stay the same
# as long as a cluster lives, and are others in the next
FIRST_VARYING_OID = 10_000
FIRST_NORMAL_OID = 16_384  # FirstNormalObjectId: what lies below came with the cluster, and does not change in it


def means_the_same_everywhere(typid: int) -> bool:
    """Whether this type's OID is written in PostgreSQL's source: of others only the landed facts say what they are."""
    return typid < FIRST_VARYING_OID


@dataclass(frozen=True)
class TypeFacts:
    """One row of ``pg_type`` whose OID is not the same on every server.

    ``typoutput``, ``typsend`` are the C names of the functions, as ``library:name`` outside the server itself; there
    may be no send function (''). ``parts`` are OIDs: of a domain its base type, of an array its element, of a range its
    subtype, of a multirange its range, of a composite type its attributes.
    """

    typid: int
    typname: str
    typtype: str
    typdelim: str
    typoutput: str
    typsend: str
    parts: tuple[int, ...] = ()


@dataclass(frozen=True)
class ColumnFacts:
    """One row of ``pg_attribute`` with its type resolved: ``base_typid``, ``base_typmod`` are those under a domain.

    ``typoutput`` is the qualified name of the type's output function, quoted by PostgreSQL itself (``regproc``).
    ``attgenerated`` is '' or 's' (stored) or 'v' (virtual, 18+). ``masked``: see ``masked_facts``. ``chosen_type``,
    ``on_unrepresentable``: what the configuration says of the column, None where it says nothing. These two are never
    landed: the log is the same, whatever the lake is to hold.
    """

    attnum: int
    attname: str
    atttypid: int
    atttypmod: int
    typname: str
    base_typid: int
    base_typmod: int
    typoutput: str
    attnotnull: bool
    attgenerated: str = ""
    attmissingval: str | None = None
    chosen_type: LakeType | None = None
    on_unrepresentable: OnUnrepresentable | None = None
    masked: bool = False

    @property
    def lake_type(self) -> LakeType:
        return self.chosen_type or lake_type(self.base_typid, self.base_typmod)


@dataclass(frozen=True)
class RelationFacts:
    """One table: ``relreplident`` is d, n, f or i; ``primary_key``, ``replica_identity`` are names in key order.

    ``primary_key`` is empty when the table has none that is checked at once (a deferrable one identifies no row).
    ``replica_identity`` is empty for f and n, and for d without a primary key. ``leaf_identities`` are those of a
    partitioned table's leaves, each once, None for FULL: rows lie in leaves, so theirs say what comes with a change,
    whatever the root's is. ``declared_key``: names as the configuration has them, where a unique index over columns
    that are never null bears them out. ``types`` has every type behind the
    columns' base types that ``FIRST_VARYING_OID`` does not exclude; logs written before it was landed have none.
    ``mask``: the word of the table's masks (``TableMask.word``), empty where no column is masked.
    """

    relid: int
    nspname: str
    relname: str
    relreplident: str
    primary_key: tuple[str, ...]
    replica_identity: tuple[str, ...]
    columns: tuple[ColumnFacts, ...]
    types: tuple[TypeFacts, ...] = ()
    leaf_identities: tuple[tuple[str, ...] | None, ...] = ()
    declared_key: tuple[str, ...] = ()
    mask: str = ""

    @property
    def name(self) -> QualifiedName:
        return QualifiedName(self.nspname, self.relname)

    @property
    def key(self) -> tuple[str, ...]:
        """The columns by which changes find their row: replica identity, else primary key, else the declared key.
        Empty: no usable key.

        Of a partitioned table: those that every leaf sends with a change of them.
        """
        if not self.leaf_identities:
            whole = (self.primary_key or self.declared_key) if self.relreplident == "f" else ()
            return self.replica_identity or whole
        for columns in (self.replica_identity, self.primary_key, self.declared_key):
            if columns and all(leaf is None or set(columns) <= set(leaf) for leaf in self.leaf_identities):
                return columns
        return ()

    @property
    def sends_whole_rows(self) -> bool:
        """Whether each change of a row comes with all of the old row: REPLICA IDENTITY FULL, of all leaves."""
        if self.leaf_identities:
            return all(leaf is None for leaf in self.leaf_identities)
        return self.relreplident == "f"

    def to_json(self) -> str:
        fields = asdict(self)
        for column in fields["columns"]:
            del column["chosen_type"], column["on_unrepresentable"]
        return json.dumps(fields, separators=(",", ":"), sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> RelationFacts:
        """Raises KeyError or TypeError when the text is not what ``to_json`` wrote."""
        fields = json.loads(text)
        return cls(
            relid=fields["relid"],
            nspname=fields["nspname"],
            relname=fields["relname"],
            relreplident=fields["relreplident"],
            primary_key=tuple(fields["primary_key"]),
            replica_identity=tuple(fields["replica_identity"]),
            columns=tuple(ColumnFacts(**column) for column in fields["columns"]),
            types=tuple(_type_facts(type_fields) for type_fields in fields.get("types", ())),
            leaf_identities=leaf_identities(fields.get("leaf_identities", ())),
            declared_key=tuple(fields.get("declared_key", ())),
            mask=fields.get("mask", ""),
        )


def leaf_identities(identities: Iterable[Sequence[str] | None]) -> tuple[tuple[str, ...] | None, ...]:
    """The identities as JSON has them, frozen."""
    return tuple(None if columns is None else tuple(columns) for columns in identities)


def _type_facts(fields: dict[str, Any]) -> TypeFacts:
    return TypeFacts(**{**fields, "parts": tuple(fields["parts"])})
