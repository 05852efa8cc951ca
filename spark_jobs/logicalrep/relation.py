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

    It leaves out dropped columns, generated ones unless the publication includes them (since PostgreSQL 18), and those
    outside the publication's column list. It has no attribute numbers: a column has only its place and its name.
    """

    relid: int
    nspname: str
    relname: str
    relreplident: str
    columns: tuple[RelationColumn, ...]


def fingerprint(relation_message: bytes) -> int:
    """The relation version: 63 bits of BLAKE2b over the Relation message.

    A pure function of the bytes: reading a window again yields the same versions, on any machine.
    """
    return int.from_bytes(hashlib.blake2b(relation_message, digest_size=8).digest(), "big") >> 1
