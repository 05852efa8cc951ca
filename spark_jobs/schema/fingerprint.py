"""The part of the catalogue that shows whether a table's rows may have changed without a row event.

The output plugin sends nothing about rewriting DDL, partitions that are attached or detached with their rows, or a
table that left the publication for a time. Each of these leaves a trace in the catalogue: another attribute number,
another OID, or the same row with another ``xmin``. So it is seen even if everything looks the same again.
https://www.postgresql.org/docs/current/catalogs.html
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.annotations import TableAnnotations
from spark_jobs.schema.partition_bounds import Bound, PartitionKey, Region, bound_of

_FIELDS_AT_FIRST = 11  # fields of a part after its name, in the oldest logs
_KEYS = 2  # fields of keys after those; any beyond them are bounds
THROUGH = " through "


@dataclass(frozen=True)
class FingerprintColumn:
    """One column that is not dropped, as ``pg_attribute`` has it. ``attgenerated`` is 's' for a stored generated one;
    older logs do not say so."""

    attnum: int
    attname: str
    atttypid: int
    atttypmod: int
    attgenerated: str = ""


@dataclass(frozen=True)
class FingerprintPart:
    """The table itself, or one partition below it: a row of ``pg_class`` and what belongs to it.

    ``parent`` and ``attached`` are the OID and ``xmin`` from ``pg_inherits``, 0 for the table itself.
    ``made_as_partition``: it was created by CREATE TABLE ... PARTITION OF, so it held no rows before. ``changed`` is
    the ``xmin`` of its ``pg_class`` row. ``attributes``: the ``xmin`` of each of its ``pg_attribute`` and
    ``pg_attrdef`` rows; None without columns. ``placed`` changes when it moves to another schema and, if its changes
    come by name, when it is renamed. ``identity``: the columns that identify the row of a change. ``indexes``: those
    that may have been its replica identity, with their ``xmin``; none if the messages tell which one it was.
    ``primary_key``: the OID of that constraint, which a REINDEX does not change; None if there is none, or if rows
    have another replica identity, without which the source refuses to update and delete what is published.
    ``declared_key``: the OID of the unique constraint or index behind the key that the configuration declares.
    ``bound``: as PostgreSQL prints it; None for a partition that is being detached, and in older logs for the table
    itself if that is a partition. ``partition_key``: set if it is partitioned itself.
    """

    relid: int
    name: QualifiedName
    relpersistence: str
    parent: int
    attached: int
    made_as_partition: bool
    relfilenode: int
    reltoastrelid: int
    changed: int
    attributes: str | None
    placed: str
    identity: str
    indexes: tuple[str, ...]
    primary_key: int | None = None
    declared_key: int | None = None
    bound: str | None = None
    partition_key: PartitionKey | None = None


@dataclass(frozen=True)
class FingerprintType:
    """A type that a column uses. ``labels``: those of an enum, by OID, with the ``xmin`` of each row, which older logs
    lack. ``attributes``: those of a composite type, by number and type; the type of dropped ones, which older logs
    lack, is 0."""

    typid: int
    typname: str
    labels: tuple[tuple[int | str, ...], ...]
    attributes: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class FingerprintMask:
    """What the configuration masked at this look: ``columns`` by their names at that time; ``salt``: the salt's
    word."""

    salt: str
    columns: tuple[str, ...]

    def numbers(self, of: Iterable[FingerprintColumn]) -> frozenset[int]:
        """The numbers of the masked columns."""
        return frozenset(column.attnum for column in of if column.attname in self.columns)


@dataclass(frozen=True)
class Fingerprint:
    """One followed table. ``text`` holds all other fields as the server wrote them, and ``word`` is a hash of all but
    the ``annotations``, which say nothing about rows. Older logs lack these.

    ``entries``: the publications that send its changes. If a partition is published by tables above it alone, what
    follows ``THROUGH`` changes when one of them, or the partition, moves. ``published_by_name``: the table itself is in
    a publication's list of tables. ``parts`` are the table itself and every partition below it. ``mask`` is None if
    nothing is masked.
    """

    word: str
    text: str
    relid: int
    name: QualifiedName
    entries: str
    published_by_name: bool
    columns: tuple[FingerprintColumn, ...]
    parts: tuple[FingerprintPart, ...]
    types: tuple[FingerprintType, ...]
    mask: FingerprintMask | None = None
    annotations: TableAnnotations | None = None

    @classmethod
    def of(cls, word: str, text: str) -> Fingerprint:
        """``text``: the JSON that ``spark_jobs.postgres.fingerprints`` asks for. Raises ValueError, TypeError or
        KeyError."""
        relid, nspname, relname, entries, published_by_name, fields, parts, types, *more = json.loads(text)
        columns = tuple(FingerprintColumn(*column) for column in fields)
        mask = next((FingerprintMask(each[0], tuple(each[1:])) for each in more if isinstance(each, list)), None)
        masked = mask.numbers(columns) if mask is not None else ()
        annotations = next((TableAnnotations.of(each, masked) for each in more if isinstance(each, dict)), None)
        return cls(
            word,
            text,
            relid,
            QualifiedName(nspname, relname),
            entries,
            published_by_name,
            columns,
            tuple(_part(part) for part in parts),
            tuple(_type(fields) for fields in types),
            mask,
            annotations,
        )

    @property
    def mask_word(self) -> str:
        """The word of its masks, equal to ``TableMask.word``."""
        if self.mask is None:
            return ""
        return "+".join([self.mask.salt, *map(str, sorted(self.mask.numbers(self.columns)))])

    @property
    def look_word(self) -> str:
        """Differs from an earlier one, too, if a comment was changed since."""
        return self.word + (self.annotations.rows if self.annotations is not None else "")

    def bounds(self, part: FingerprintPart) -> tuple[Bound | None, ...]:
        """The bounds of the partition's ancestors below the root, outermost first, then its own; None for each one that
        is not known."""
        bounds: list[Bound | None] = []
        while part.parent:
            parent = self._by_relid[part.parent]
            bounds.insert(0, bound_of(part.bound, parent.partition_key, self._columns_by_name))
            part = parent
        return tuple(bounds)

    @cached_property
    def _by_relid(self) -> Mapping[int, FingerprintPart]:
        return {part.relid: part for part in self.parts}

    @cached_property
    def _columns_by_name(self) -> Mapping[str, tuple[int, int]]:
        return {column.attname: (column.attnum, column.atttypid) for column in self.columns}

    def region(self, part: FingerprintPart) -> Region | None:
        """The rows that the partition may hold; None if its bounds do not say so exactly."""
        bounds = self.bounds(part)
        known = tuple(bound for bound in bounds if bound is not None)
        return Region(known) if known and len(known) == len(bounds) else None

    @property
    def leaves(self) -> tuple[FingerprintPart, ...]:
        """The parts that hold rows."""
        return tuple(part for part in self.parts if part.partition_key is None)


def is_later(xid: int, than: int) -> bool:
    """Of two transactions that altered one table, and so waited for one another. Their numbers wrap around."""
    return 0 < (xid - than) % (1 << 32) < 1 << 31


def _part(values: list[Any]) -> FingerprintPart:
    """One part from its JSON fields. Logs of older versions lack the keys or the bounds."""
    relid, nspname, relname, *fields = values
    rest, (indexes, *keys) = fields[: _FIELDS_AT_FIRST - 1], fields[_FIELDS_AT_FIRST - 1 :]
    if len(keys) > _KEYS:
        strategy, columns = keys[-1] or ("", ())
        keys[-1] = PartitionKey(strategy, tuple(columns)) if strategy else None
    return FingerprintPart(relid, QualifiedName(nspname, relname), *[*rest, tuple(indexes), *keys])


def _type(values: list[Any]) -> FingerprintType:
    typid, typname, labels, attributes = values
    return FingerprintType(typid, typname, tuple(map(tuple, labels)), tuple((num, typ) for num, typ in attributes))
