"""Which relation version is in force for which change: that of its relation's last Relation message before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RelationSeen:
    """A relation version, and its first Relation message in the window, with its place."""

    relid: int
    version: int
    commit_lsn: int
    ordinal: int
    nspname: str
    relname: str
    message: bytes


def relation_names(relation_message: bytes) -> tuple[str, str]:
    """(nspname, relname). Raises ValueError if the message is damaged, or its names are not UTF-8."""
    nspname, relname, _ = relation_message[5:].split(b"\0", 2)
    return nspname.decode() or "pg_catalog", relname.decode()


def versions_in_force(
    carried: Mapping[int, int], at: Ints, relids: Ints, versions: Ints, changes: Ints, change_relids: Ints
) -> Ints:
    """For each place in ``changes``, a change of the relation in ``change_relids``: the version in force there, or -1.

    ``at``, ``relids`` and ``versions`` are the places, relations and versions of a batch's Relation messages.
    ``carried`` (relid → version) are the versions in force before the batch.
    """
    carried_relids = np.fromiter(carried.keys(), np.int64, len(carried))
    carried_versions = np.fromiter(carried.values(), np.int64, len(carried))
    # a key that sorts by relid, then by place; carried versions come before the batch's first message
    keys = np.concatenate([carried_relids << 31, (relids << 31) + at + 1])
    order = np.argsort(keys)
    keys, known = keys[order], np.concatenate([carried_versions, versions])[order]
    if not len(keys):
        return np.full(len(changes), -1, np.int64)
    places = np.searchsorted(keys, (change_relids << 31) + changes + 1, side="right") - 1
    fits = (places >= 0) & (keys[places] >> 31 == change_relids)
    return np.where(fits, known[places], -1)
