"""Which tables the lines of ``test_decoding`` are of: its lines hold names where pgoutput's messages hold OIDs."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from spark_jobs.logicalrep.relation import fingerprint
from spark_jobs.logicalrep.test_decoding.lines import TableName
from spark_jobs.schema.relation_facts import RelationFacts


@dataclass(frozen=True)
class LineTable:
    """One followed table. ``relation_message`` is what pgoutput would announce it with.

    Where the catalogue has the table no more, it is empty, and ``relid`` a negative number, no other table's: the lines
    are kept, and the name in the marker stops the table.
    """

    relid: int
    name: TableName
    relation_message: bytes

    @property
    def version(self) -> int:
        """-1 without a Relation message."""
        return fingerprint(self.relation_message) if self.relation_message else -1


@dataclass(frozen=True)
class LineTables:
    """The followed tables by the names that lines may have: a partitioned table's partitions stand for it.

    ``partitioned`` are the relids of followed tables that have partitions. ``is_gone`` says whether the catalogue has
    a table no more: it may have been a partition of one of them.
    """

    by_name: Mapping[TableName, LineTable]
    partitioned: tuple[int, ...]
    is_gone: Callable[[TableName], bool]

    def followed(self, names: Sequence[TableName]) -> tuple[LineTable, ...]:
        """The followed tables among them, each once, in order."""
        return tuple(dict.fromkeys(self.by_name[name] for name in names if name in self.by_name))


def relation_message(facts: RelationFacts) -> bytes:
    """The Relation message that pgoutput sends for this table: ``logicalrep_write_rel`` of PostgreSQL's ``proto.c``.

    Generated columns are left out. A partitioned table's lines come with the identities of its leaves, so it has FULL
    only where all of them have. https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
    """
    columns = [column for column in facts.columns if not column.attgenerated]
    nspname = "" if facts.nspname == "pg_catalog" else facts.nspname
    data = b"R" + struct.pack(">I", facts.relid) + _cstring(nspname) + _cstring(facts.relname)
    relreplident, identity = facts.relreplident, facts.replica_identity
    if facts.leaf_identities:
        relreplident = "f" if all(leaf is None for leaf in facts.leaf_identities) else "d"
        identity = facts.key
    data += relreplident.encode("ascii") + struct.pack(">H", len(columns))
    for column in columns:
        key = relreplident == "f" or column.attname in identity
        data += struct.pack(">B", key) + _cstring(column.attname)
        data += struct.pack(">Ii", column.atttypid, column.atttypmod)
    return data


def _cstring(text: str) -> bytes:
    return text.encode() + b"\0"
