"""What must be known of the tables with masked columns before a window is read.

Where it is in doubt whether a value is masked, the window is not read: the value would stay in the change log.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

from spark_jobs.change_log.log import ChangeLog
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import ConfigurationError, SourceError
from spark_jobs.logicalrep.relation import Relation
from spark_jobs.options.table_mask import TableMask
from spark_jobs.postgres.catalogue import relids_below
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.fingerprint import Fingerprint
from spark_jobs.schema.masked_relation import MaskedRelation
from spark_jobs.schema.relation_facts import RelationFacts
from spark_jobs.tables.at_source import AtSource
from spark_jobs.tables.masked_columns import masked_table_facts


@dataclass
class MaskedTables:
    """The masked tables of one window, in ``tables`` by OID.

    ``below``: for each OID of a partition or inheriting table, the name of the masked table above it. ``names``: the
    tables whose columns the configuration masks, also if the source has none of this name now. ``older``: earlier looks
    at the catalogue, latest first, read when needed.
    """

    tables: Mapping[int, MaskedRelation]
    below: Mapping[int, str]
    names: Container[QualifiedName]
    older: Iterator[tuple[Fingerprint, ...]]

    @property
    def mask(self) -> TableMask:
        """The mask of any table: all have the same salt."""
        return next(iter(self.tables.values())).mask

    def why_refused(self, relation: Relation) -> str:
        """Why the relation can neither be masked nor kept as it is; empty if it can."""
        known = relation.relid in self.tables
        if not known and relation.relid in self.below:
            above = self.below[relation.relid]
            return f"it is sent under its own name, and {above} above it has masked columns; give it a mask of its own"
        if not known and QualifiedName(relation.nspname, relation.relname) in self.names:
            return (
                "another table now has this name, and the configuration masks its columns; or it was dropped, or the"
                " mask does not fit it"
            )
        if self.places(relation) is None:
            return "the catalogue does not say which of its columns are masked"
        return ""

    def places(self, relation: Relation) -> tuple[int, ...] | None:
        """The places of the masked columns; empty for a table without a mask, None where they are in doubt.

        When they are in doubt, or no look has shown one of the names, earlier looks are read: a look may have shown DDL
        long before the window that the DDL happened in.
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
    """The facts that may be landed. Those of partitions are left out: no mask has hashed their missing values
    (``attmissingval``), and their rows are sent under another name.

    Raises SourceError when a masked table was altered since its masks were matched: missing values may be unmasked.
    """
    if tables is None:
        return tuple(facts)
    for relation in facts:
        known = tables.tables.get(relation.relid)
        if known is not None and relation.mask != known.word:
            raise SourceError(f"{known.name} was altered while its changes were read", hint="run it again")
    return tuple(relation for relation in facts if relation.relid not in tables.below)


@dataclass(frozen=True)
class MaskedNow:
    """The tables with masked columns as the catalogue has them before the window's look and before it is read."""

    tables: tuple[MaskedRelation, ...]
    below: Mapping[int, str]
    names: Container[QualifiedName]
    log: ChangeLog

    @classmethod
    def of(cls, at_source: AtSource) -> MaskedNow | None:
        """None where nothing is masked. Raises ConfigurationError when a masked column or its table does not exist."""
        pipeline, masks = at_source.pipeline, at_source.pipeline.masks
        if not masks and not (pipeline.patterns and pipeline.patterns.masking):
            return None
        facts = masked_table_facts(at_source)
        below = relids_below(at_source.connection, [table.relid for table in facts])
        tables = tuple(MaskedRelation.of(table, masks[table.name]) for table in facts)
        known = {table.relid: table.name for table in tables}
        by_root = {relid: known[root] for relid, root in below.items() if relid not in known}
        return cls(tables, by_root, _MaskedNames(pipeline), at_source.log)

    def since(self, before: Sequence[Fingerprint], checkpoint: WindowMarker) -> MaskedTables:
        """These tables with what earlier looks showed. ``before``: the last landed look as of ``checkpoint``, empty
        where nothing has changed since. Raises ConfigurationError when another column has taken a masked one's name."""
        for table in self.tables:
            for look in before:
                if look.relid == table.relid and (names := table.taken_from(look)):
                    raise _name_taken(table, *names)
        tables = {table.relid: table.with_earlier(before) for table in self.tables}
        return MaskedTables(tables, self.below, self.names, _older_looks(self.log, checkpoint))


@dataclass(frozen=True)
class _MaskedNames(Container[QualifiedName]):
    """The tables whose columns are masked. With patterns they cannot be listed."""

    pipeline: Pipeline

    def __contains__(self, name: object) -> bool:
        return isinstance(name, QualifiedName) and bool(self.pipeline.tables_of(name)[0].mask)


def _name_taken(table: MaskedRelation, name: str, now: str) -> ConfigurationError:
    return ConfigurationError(
        f"tables: {table.name}: mask: the masked column {name} was renamed to {now}, and {name} is now the name of"
        " another column: nothing is read",
        hint=f"mask {now} too; once that is captured, you can remove one of them from mask:",
    )


def _older_looks(log: ChangeLog, checkpoint: WindowMarker) -> Iterator[tuple[Fingerprint, ...]]:
    """All looks at the catalogue that the log still holds, latest first."""
    marker: WindowMarker | None = checkpoint
    while marker is not None and marker.catalogue is not None:
        landed = marker.catalogue.window
        yield log.last_look(marker)
        earlier = log.markers(landed - 2)[:1] if landed > 0 else ()
        marker = next((each for each in earlier if each.ordinal < landed), None)
