"""Which tables cannot be replicated, and why: checked at the source before anything is created or read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from spark_jobs.configuration import Pipeline, Table, named_twice
from spark_jobs.errors import CdcError, PreconditionError
from spark_jobs.options.column_options import NO_OPTIONS
from spark_jobs.postgres.catalogue import publishable_tables, relation_facts
from spark_jobs.postgres.publication import why_not_sent
from spark_jobs.postgres.published_tables import PublishedTable, published_tables
from spark_jobs.postgres.source_tables import SourceTable, no_table, source_tables
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.relation_facts import RelationFacts
from spark_jobs.schema.table_faults import binary_fault, table_faults
from spark_jobs.tables.at_source import AtSource
from spark_jobs.tables.masked_columns import why_mask_does_not_fit
from spark_jobs.tables.selected_columns import columns_read, why_incomplete, why_not_selectable, why_not_withheld


@dataclass(frozen=True)
class TableStopped:
    """A table that should be followed but cannot be at present."""

    name: QualifiedName
    error: CdcError


@dataclass(frozen=True)
class TablesAtSource:
    """What the source shows of the tables that are to be followed. ``existing`` and ``published``: by their names
    there; ``facts``: by those of the lake's tables, for all that are looked at closely."""

    at_source: AtSource
    existing: Mapping[QualifiedName, SourceTable]
    published: Mapping[QualifiedName, PublishedTable]
    facts: Mapping[QualifiedName, RelationFacts]
    twice: Collection[QualifiedName]
    thorough: bool

    @classmethod
    def of(
        cls,
        at_source: AtSource,
        names: Sequence[QualifiedName],
        known: Collection[QualifiedName] = (),
        *,
        thorough: bool = False,
    ) -> TablesAtSource:
        """``names``: of the lake's tables. Those that are ``known`` have been followed until now: faults of their keys
        or types show when changes are applied. ``thorough``: for the doctor, who looks before others do, and may wait
        for locks of tables."""
        connection, pipeline, source = at_source.connection, at_source.pipeline, at_source.source
        relations = pipeline.relations(names)
        existing = source_tables(connection, relations)
        published = (
            published_tables(connection, source.publications, relations, for_reading=thorough)
            if at_source.publication is not None
            else {}
        )
        sent = published if source.has_publications else existing
        keys = pipeline.declared_keys
        configured = {
            *pipeline.column_selections,
            *keys,
            *(pipeline.masks if pipeline.patterns is not None else ()),
            *(table.relation for table in pipeline.tables or () if table.options != NO_OPTIONS),
        }
        checked = {relation for relation in relations if relation not in sent or relation in configured}
        entering = [name for name in names if name not in known or pipeline.relation(name) in checked]
        facts = relation_facts(connection, names=pipeline.relations(entering), keys=keys) if entering else ()
        by_name = pipeline.by_name(entering, {fact.name: fact for fact in facts})
        return cls(at_source, existing, published, by_name, tables_named_twice(at_source, names), thorough)

    @property
    def pipeline(self) -> Pipeline:
        return self.at_source.pipeline

    @property
    def is_altered(self) -> bool:
        """Whether the publication is ours, and sync brings it in step."""
        publication = self.at_source.publication
        return self.pipeline.alters_publication and (publication is None or publication.ours)

    @cached_property
    def _publishable(self) -> tuple[QualifiedName, ...]:
        """Queried once, however many tables are missing."""
        return publishable_tables(self.at_source.connection)

    def columns(self, table: Table) -> tuple[str, ...]:
        """Those that are sent, once our publication is in step."""
        selection = self.pipeline.column_selections.get(table.relation)
        sent = None if self.is_altered else self.published.get(table.relation)
        return columns_read(self.facts[table.name], sent, selection)

    def faults(self, table: Table) -> Iterator[CdcError]:
        """Every reason why the lake's table cannot be followed."""
        name, source, publication = table.relation, self.at_source.source, self.at_source.publication
        connection = self.at_source.connection
        if table.name in self.twice:
            yield named_twice(table)
        if name not in self.existing or (self.thorough and table.name not in self.facts):
            yield no_table(connection, name, others=self._publishable)
            return
        if fault := self.existing[name].fault:
            yield fault
        if root := self._sent_as(self.existing[name]):
            yield PreconditionError(
                f"{name} is a partition of {root}, which has its rows, and under whose name its changes are sent",
                hint=f"remove {name} from tables: in the configuration, or detach it",
            )
        elif publication is not None and not self.is_altered and (error := why_not_sent(publication, name)):
            yield error
        if self._may_not_join(name):
            quoted = str(name).replace("'", "''")
            yield PreconditionError(
                f"{name} cannot join publication {source.publications[0]}: role {connection.info.user} does not own it",
                hint=f"ALTER TABLE {name} OWNER TO ..., or leave it out: exclude: ['{quoted}']",
            )
        sent = self.published.get(name)
        if sent is not None and sent.error is not None:
            yield sent.error
        if table.name in self.facts:
            yield from self._faults_of_columns(table, sent)

    def _sent_as(self, table: SourceTable) -> QualifiedName | None:
        """The table above this one under whose name our publication, or the user's, sends its changes."""
        publication = self.at_source.publication
        if not self.pipeline.source.has_publications:
            return None  # changes name the partition itself
        if self.is_altered:
            return next((each for each in table.above if each in self.existing), None)
        if publication is None or publication.publishes(table.name):
            return None
        return next(filter(publication.publishes, table.above), None)

    def _may_not_join(self, name: QualifiedName) -> bool:
        """One such table would hold up all that a pattern matches. One that is named by itself stops the statement."""
        named = self.thorough and self.at_source.publication is not None
        matters = self.pipeline.patterns is not None or named
        return matters and self.is_altered and name not in self.published and not self.existing[name].owns

    def _faults_of_columns(self, table: Table, sent: PublishedTable | None) -> Iterator[CdcError]:
        facts, pipeline, name = self.facts[table.name], self.pipeline, table.relation
        # the mask of a table that is named by itself was checked before
        mask = pipeline.masks.get(name) if self.thorough or pipeline.patterns is not None else None
        if mask is not None and (misfit := why_mask_does_not_fit(facts, mask)):
            yield misfit
        if selection := pipeline.column_selections.get(name):
            errors = [why_not_selectable(facts, selection, self.at_source.connection.info.server_version)]
            if errors == [None] and sent is not None and not self.is_altered:
                withheld = why_not_withheld(selection, facts, sent) if self.thorough else None
                errors = [why_incomplete(selection, name, sent.columns), withheld]
            found = [error for error in errors if error is not None]
            yield from found
            if found:
                return
        yield from table_faults(
            facts,
            binary=pipeline.source.binary,
            sent=self.columns(table),
            published=sent is not None,
            form=table.form,
            key=pipeline.declared_keys.get(name, ()),
            options=table.options,
        )


def stopped_tables(
    at_source: AtSource, names: Sequence[QualifiedName], known: Collection[QualifiedName]
) -> tuple[TableStopped, ...]:
    """The lake's tables of ``names`` that cannot be followed, each with the reason; the others are not affected.

    Tables that are not ``known`` yet are checked before they enter the publication: the source itself would refuse
    every UPDATE and DELETE of a published table without a key.
    """
    tables = TablesAtSource.of(at_source, names, known)
    firsts = ((name, next(tables.faults(at_source.pipeline.table(name)), None)) for name in names)
    return tuple(TableStopped(name, error) for name, error in firsts if error is not None)


def tables_named_twice(at_source: AtSource, names: Sequence[QualifiedName]) -> Mapping[QualifiedName, SourceTable]:
    """Those of ``names`` that a source table has which a pattern matches, too: that table is not replicated."""
    pipeline, patterns = at_source.pipeline, at_source.pipeline.patterns
    further = [name for name in names if pipeline.table(name).shows and patterns is not None and patterns.follows(name)]
    return source_tables(at_source.connection, further) if further else {}


def all_stopped(stopped: Sequence[TableStopped]) -> CdcError:
    """The error if all tables are ``stopped``: that of the first one, which says how many others there are."""
    first = stopped[0].error
    if len(stopped) == 1:
        return first
    others = ", ".join(str(table.name) for table in stopped[1:4])
    more = f" and {len(stopped) - 4} more" if len(stopped) > 4 else ""
    return type(first)(f"{first.what} (and {others}{more} cannot be replicated either)", hint=first.hint)


def require_readable(at_source: AtSource, names: Sequence[QualifiedName]) -> None:
    """With ``source.binary``, raises PreconditionError for the first of the lake's tables whose values cannot be read
    in binary. Tables that do not exist are ignored here."""
    if not at_source.source.binary:
        return
    tables = TablesAtSource.of(at_source, names)
    for facts in tables.facts.values():
        sent = tables.published.get(facts.name)
        if fault := binary_fault(sent.sent_of(facts) if sent is not None else facts):
            raise fault
