"""Finds, by their Relation messages, partitions that were another thing when a change of the window was made.

Changes of a partitioned table are sent under the root's name, with the root's Relation message; the catalogue says
which old values the leaves send. If a leaf had another replica identity for a time, a changed key may have been sent
without the old key, and an old row without its values. If it was a partition only for a time, its rows went without a
word. The catalogue may keep no trace of either, but pgoutput announces the leaf, too. Where lines name it instead, what
was dropped and created again between two looks is taken for one table.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.logicalrep.relation import Relation
from spark_jobs.postgres.catalogue import relids_below
from spark_jobs.postgres.connection import Connection
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.fingerprint import FingerprintPart, is_later
from spark_jobs.schema.relation_facts import RelationFacts


def identities_for_a_time(
    control: Connection, followed: Iterable[int], announced: Iterable[Relation], facts: Iterable[RelationFacts]
) -> Iterator[tuple[int, str]]:
    """Relids of followed tables, each with why its rows may differ. ``announced``: by the window; ``facts``: of these
    relations, as they are now. Asks the source only if an identity is another one now. Raises SourceError."""
    now = {each.relid: each for each in facts}
    others = [relation for relation in announced if _is_another(relation, now)]
    below = relids_below(control, tuple(followed)) if others else {}
    for leaf in others:
        root = now.get(below.get(leaf.relid, 0))
        if root is not None and _is_unknown(leaf, root):
            yield root.relid, f"the replica identity of {_name(leaf)} was another for a time"


def partitions_for_a_time(
    control: Connection, announced: Sequence[Relation], changed: Collection[int], known: Collection[int]
) -> Iterator[tuple[int, str]]:
    """Relids of what the window has announced and has changes of, each with why rows may be gone: a partition was
    written, and is none now. Its changes were sent under the name of a table with the same columns. ``changed``: the
    relations that the window has changes of; ``known``: partitions of which a look knows more, and what has had changes
    of its own. Raises SourceError."""
    leaves = [relation for relation in announced if relation.relid not in {*changed, *known}]
    below = relids_below(control, [relation.relid for relation in announced]) if leaves else {}
    for leaf in leaves:
        for root in announced if leaf.relid not in below else ():
            if root.relid in changed and _names(root) == _names(leaf):
                yield root.relid, f"{_name(leaf)} was a partition for a time"


def _name(relation: Relation) -> QualifiedName:
    return QualifiedName(relation.nspname, relation.relname)


def partitions_of_a_name(
    new: Iterable[tuple[int, FingerprintPart]], batch: pa.RecordBatch
) -> Iterator[tuple[int, str]]:
    """Relids of followed tables, each with why rows may be gone: ``batch`` has lines about a partition of this name
    from a transaction that is older than the partition. ``new``: the partitions that no look before has shown, each
    with the followed table's relid. (A line of an older transaction that wrote late costs a snapshot, no more.)"""
    for relid, part in new:
        names = (re.escape(name.replace('"', '""')) for name in (part.name.nspname, part.name.relname))
        line = r'^table "?{}"?\."?{}"?: '.format(*names)
        of_name = pc.and_(pc.equal(batch.column("relid"), relid), pc.match_substring_regex(batch.column("data"), line))
        xids = batch.filter(of_name).column("xid").unique().to_pylist()
        if any(is_later(part.attached, than=xid) for xid in xids):
            yield relid, f"partition {part.name} was dropped, and another has its name"


def _names(relation: Relation) -> set[str]:
    return {column.name for column in relation.columns}


def _is_another(announced: Relation, now: Mapping[int, RelationFacts]) -> bool:
    """FULL sends everything. The look at the catalogue tells two indexes or two primary keys apart, which have one
    letter."""
    facts = now.get(announced.relid)
    return facts is not None and announced.relreplident not in ("f", facts.relreplident)


def _is_unknown(leaf: Relation, root: RelationFacts) -> bool:
    """Whether changes of the root are decoded as if no leaf had this identity. Tables that inherit from the root, but
    are no partitions, are announced as well; their changes are not sent under its name."""
    identity = {column.name for column in leaf.columns if column.key}
    known = root.leaf_identities
    return bool(known) and all(columns is None or set(columns) != identity for columns in known)
