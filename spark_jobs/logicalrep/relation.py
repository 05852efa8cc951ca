"""The Relation message: which columns the changes that follow it have."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """One column as pgoutput sends it. ``key``: part of the replica identity (under FULL every column is)."""

    name: str
    atttypid: int
    atttypmod: int
    key: bool


@dataclass(frozen=True, slots=True)
class Relation:
    """Message ``R``. ``nspname`` is empty for ``pg_catalog``; ``relreplident`` is d, n, f or i.

    Dropped columns are absent, and so are generated ones unless the publication sends them (18+), and those
    outside the publication's column list. No attribute numbers are sent: a column is known by its place and name.
    """

    relid: int
    nspname: str
    relname: str
    relreplident: str
    columns: tuple[RelationColumn, ...]


def fingerprint(relation_message: bytes) -> int:
    """The relation version: 63 bits of BLAKE2b over the Relation message, so equal messages have equal versions.

    A pure function of the bytes: a window that is read again gives the same versions, on any machine.
    """
    return int.from_bytes(hashlib.blake2b(relation_message, digest_size=8).digest(), "big") >> 1
