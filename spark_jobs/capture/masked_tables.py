"""The tables with masked columns, as far as one window's messages may be about them: asked before it is read.

What is not known with certainty is not read: the change log would hold it for as long as it is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from spark_jobs.change_log.log import ChangeLog
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import ConfigurationError, SourceError
from spark_jobs.logicalrep.relation import Relation
from spark_jobs.postgres.catalogue import relids_below
from spark_jobs.postgres.connection import Connection
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.fingerprint import Fingerprint
from spark_jobs.schema.masked_relation import MaskedRelation
from spark_jobs.schema.relation_facts import RelationFacts
from spark_jobs.table_mask import TableMask
from spark_jobs.tables.masked_columns import masked_table_facts


@dataclass
class MaskedTables:
    """``tables`` by OID. ``below``: the OIDs of their partitions, and of tables that inherit from them, each with the
    name of the one above. ``names``: those in the configuration. ``older``: further looks at the catalogue, latest
    first."""

    tables: Mapping[int, MaskedRelation]
    below: Mapping[int, str]
    names: Collection[QualifiedName]
    older: Iterator[tuple[Fingerprint, ...]]

    @property
    def mask(self) -> TableMask:
        """That of any of them: all have one salt."""
        return next(iter(self.tables.values())).mask

    def why_refused(self, relation: Relation) -> str:
        """Why a relation can neither be masked nor read as it is; empty: it can."""
        known = relation.relid in self.tables
        if not known and relation.relid in self.below:
            above = self.below[relation.relid]
            return f"it comes under its own name, and columns of {above} above it are masked; give it a mask of its own"
        if not known and QualifiedName(relation.nspname, relation.relname) in self.names:
            return "another table has the name by now, and columns are masked"
        if self.places(relation) is None:
            return "the catalogue does not say which of its columns are masked"
        return ""

    def places(self, relation: Relation) -> tuple[int, ...] | None:
        """The places of masked columns; none in a table that has no mask, None where they are in doubt.

        Looks that are older than the last one are asked for where a name is in none, or there is a doubt: DDL may have
        been looked at long before the window comes that it happened in.
        """
        table = self.tables.get(relation.relid)
        if table is None:
            return ()
        places = table.places(relation)
        while (places is None or not table.knows(relation)) and (looks := next(self.older, None)) is not None:
            self.tables = {relid: known.with_earlier(looks) for relid, known in self.tables.items()}
            table = self.tables[relation.relid]
            places = table.places(relation)
        return places


def masked_alike(facts: Sequence[RelationFacts], tables: MaskedTables | None) -> tuple[RelationFacts, ...]:
    """The facts as they may be landed: without those of partitions, whose missing values no mask has hashed, and whose
    rows come under another name. Raises SourceError: a masked table has other names than when its masks were matched,
    so that a missing value may not be hashed."""
    if tables is None:
        return tuple(facts)
    for found in facts:
        known = tables.tables.get(found.relid)
        if known is not None and found.mask != known.word:
            raise SourceError(f"{known.name} was altered while its changes were read", hint="run it again")
    return tuple(found for found in facts if found.relid not in tables.below)


@dataclass(frozen=True)
class MaskedNow:
    """The tables with masked columns as the catalogue has them before a window is looked at and read."""

    tables: tuple[MaskedRelation, ...]
    below: Mapping[int, str]
    names: Collection[QualifiedName]

    @classmethod
    def of(cls, connection: Connection, pipeline: Pipeline) -> MaskedNow | None:
        """None where nothing is masked. Raises ConfigurationError: a masked column, or its table, is not there."""
        masks = pipeline.masks
        if not masks:
            return None
        facts = masked_table_facts(connection, masks)
        below = relids_below(connection, [table.relid for table in facts])
        tables = tuple(MaskedRelation.of(table, masks[table.name]) for table in facts)
        known = {table.relid: table.name for table in tables}
        by_root = {relid: known[root] for relid, root in below.items() if relid not in known}
        return cls(tables, by_root, tuple(masks))

    def since(self, before: Sequence[Fingerprint], log: ChangeLog, checkpoint: WindowMarker) -> MaskedTables:
        """``before``: the last look at the catalogue that was landed with ``checkpoint``; empty where nothing has
        changed since. Raises ConfigurationError: another column has taken the name of a masked one."""
        for table in self.tables:
            for look in before:
                if look.relid == table.relid and (taken := table.taken_from(look)):
                    raise _name_taken(table, *taken)
        tables = {table.relid: table.with_earlier(before) for table in self.tables}
        return MaskedTables(tables, self.below, self.names, _older_looks(log, checkpoint))


def last_look(log: ChangeLog, checkpoint: WindowMarker) -> tuple[Fingerprint, ...]:
    """What was landed of the followed tables, as of ``checkpoint``."""
    return log.fingerprints(checkpoint.catalogue.window) if checkpoint.catalogue is not None else ()


def _name_taken(table: MaskedRelation, name: str, now: str) -> ConfigurationError:
    return ConfigurationError(
        f"tables: {table.name}: mask: the column {name} that was masked until now is called {now}, and another one is"
        f" called {name}: nothing is read",
        hint=f"mask {now} too; once that is captured, it may be taken out of mask:",
    )


def _older_looks(log: ChangeLog, checkpoint: WindowMarker) -> Iterator[tuple[Fingerprint, ...]]:
    """The looks at the catalogue that the log holds, latest first, as far back as it reaches."""
    marker: WindowMarker | None = checkpoint
    while marker is not None and marker.catalogue is not None:
        landed = marker.catalogue.window
        yield log.fingerprints(landed)
        earlier = log.markers(landed - 2)[:1] if landed > 0 else ()
        marker = next((found for found in earlier if found.ordinal < landed), None)
