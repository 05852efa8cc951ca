"""The catalogue's facts about a table. They are landed in the change log, so that decoding needs no live catalogue."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from spark_jobs.errors import DecodeError
from spark_jobs.options.column_options import OnUnrepresentable
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.lake_types import LakeType, lake_type

# FirstGenbkiObjectId: from here on initdb assigns OIDs (to the types of information_schema, for example). They are
# fixed within a cluster, but differ between clusters
FIRST_VARYING_OID = 10_000
FIRST_NORMAL_OID = 16_384  # FirstNormalObjectId: objects below it came with the cluster and never change in it
# how bytes are kept in a missing value that are not UTF-8: one by one, and JSON escapes them
NOT_UTF_8 = "surrogateescape"
_CONFIGURED = ("chosen_type", "on_unrepresentable")  # of a column, by the configuration


def means_the_same_everywhere(typid: int) -> bool:
    """Whether this type's OID is fixed in PostgreSQL's source. Other types are only known from the landed facts."""
    return typid < FIRST_VARYING_OID


@dataclass(frozen=True)
class TypeFacts:
    """One row of ``pg_type`` whose OID is not the same on every server, or whose text is not
    (``wire_type.printed_otherwise``).

    ``typoutput`` and ``typsend`` are the functions' C names, as ``library:name`` outside the server itself; there may
    be no send function (''). ``parts`` are OIDs: a domain's base type, an array's element, a range's subtype, a
    multirange's range, or a composite type's attributes.
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
    """One row of ``pg_attribute`` with its type resolved: ``base_typid`` and ``base_typmod`` are a domain's base type.

    ``typoutput`` is the qualified name of the type's output function, quoted by PostgreSQL itself (``regproc``).
    ``attgenerated`` is '' or 's' (stored) or 'v' (virtual, 18+). ``attmissingval``: see ``NOT_UTF_8``; ``masked``: see
    ``masked_facts``. ``chosen_type`` and ``on_unrepresentable`` are what the configuration says about the column
    (``with_options``). These two are never landed: the log does not depend on what the lake is configured to hold.
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
    on_unrepresentable: OnUnrepresentable = "error"
    masked: bool = False

    @property
    def lake_type(self) -> LakeType:
        return self.chosen_type or lake_type(self.base_typid, self.base_typmod)


@dataclass(frozen=True)
class RelationFacts:
    """One table: ``relreplident`` is d, n, f or i; ``primary_key`` and ``replica_identity`` are names in key order.

    ``primary_key`` is empty if there is none, or only a deferrable one, which identifies no row. ``replica_identity``
    is empty for f and n, and for d without a primary key. ``leaf_identities`` are the distinct replica identities of a
    partitioned table's leaves, None for FULL: rows are in leaves, so these decide what is sent with a change, whatever
    the root's identity is. ``declared_key``: the names in the configuration, if there is a unique index on them and
    none is nullable. ``types`` has every type behind the columns' base types that needs ``TypeFacts``; older logs lack
    it. ``mask``: the word of the table's masks (``TableMask.word``), empty if no column is masked.
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
        """The columns that identify the row of a change, empty if there is no usable key.

        They are the replica identity; with REPLICA IDENTITY FULL the primary key, or without one the declared key. For
        a partitioned table, the first of these three whose columns every leaf sends with a change.
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
        """Whether changes are sent with the whole old row: REPLICA IDENTITY FULL, for a partitioned table in all
        leaves."""
        if self.leaf_identities:
            return all(leaf is None for leaf in self.leaf_identities)
        return self.relreplident == "f"

    def to_json(self) -> str:
        return json.dumps(_landed(self), default=_landed, separators=(",", ":"), sort_keys=True)

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


def _landed(facts: Any) -> dict[str, Any]:
    """The fields of the facts of a table, a column or a type. ``asdict`` would copy each value of each."""
    return {name: field for name, field in vars(facts).items() if name not in _CONFIGURED}


def landed_facts(texts: Iterable[bytes], of: object) -> tuple[RelationFacts, ...]:
    """The distinct facts in ``texts``, each at the place of its last occurrence. ``of``: the table, for the message.
    Raises DecodeError if one of them is not what ``to_json`` wrote."""
    try:
        facts = [*map(RelationFacts.from_json, texts)]
    except (KeyError, TypeError, ValueError) as error:
        raise DecodeError(
            f"the catalogue's facts of {of} in the change log are damaged ({type(error).__name__})"
        ) from error
    return tuple(dict.fromkeys(reversed(facts)))[::-1]


def leaf_identities(identities: Iterable[Sequence[str] | None]) -> tuple[tuple[str, ...] | None, ...]:
    """The identities, as JSON has them, in tuples."""
    return tuple(None if columns is None else tuple(columns) for columns in identities)


def _type_facts(fields: dict[str, Any]) -> TypeFacts:
    return TypeFacts(**{**fields, "parts": tuple(fields["parts"])})
