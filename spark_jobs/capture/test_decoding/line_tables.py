"""The tables that ``test_decoding``'s lines belong to: lines name tables where pgoutput's messages have OIDs."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from spark_jobs.logicalrep.relation import fingerprint
from spark_jobs.logicalrep.test_decoding.lines import TableName
from spark_jobs.schema.relation_facts import RelationFacts


@dataclass(frozen=True)
class LineTable:
    """One followed table. ``relation_message`` is the Relation message that pgoutput would send for it.

    For a table that is gone from the catalogue, the message is empty and ``relid`` a negative number of its own: its
    lines are kept, and its name in the marker stops the table.
    """

    relid: int
    name: TableName
    relation_message: bytes

    @property
    def version(self) -> int:
        """The relation version; -1 without a Relation message."""
        return fingerprint(self.relation_message) if self.relation_message else -1


@dataclass(frozen=True)
class LineTables:
    """The followed tables by the names that lines may have: their own, and those of their partitions.

    ``partitioned`` are the relids of followed tables that have partitions. ``is_gone`` says whether a table is no
    longer in the catalogue: it may have been a partition of one of them.
    """

    by_name: Mapping[TableName, LineTable]
    partitioned: tuple[int, ...]
    is_gone: Callable[[TableName], bool]

    def followed(self, names: Sequence[TableName]) -> tuple[LineTable, ...]:
        """The followed tables that the names stand for, each once, in order."""
        return tuple(dict.fromkeys(self.by_name[name] for name in names if name in self.by_name))


def relation_message(facts: RelationFacts) -> bytes:
    """The Relation message that pgoutput sends for this table: ``logicalrep_write_rel`` of PostgreSQL's ``proto.c``.

    Generated columns are left out. A partitioned table's lines are sent with the replica identities of its leaves, so
    it has FULL only if all leaves have.
    https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
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
