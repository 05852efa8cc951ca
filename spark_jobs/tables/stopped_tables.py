"""Which tables cannot be replicated, and why: checked at the source before anything is created or read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from spark_jobs.column_options import NO_OPTIONS
from spark_jobs.configuration import Pipeline, Source, Table, named_twice
from spark_jobs.errors import CdcError, PreconditionError
from spark_jobs.postgres.catalogue import TableThere, no_table, relation_facts, tables_there
from spark_jobs.postgres.connection import Connection
from spark_jobs.postgres.privileges import table_privileges
from spark_jobs.postgres.publication import find_publications, why_not_sent
from spark_jobs.postgres.published_tables import published_tables
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.table_faults import binary_fault, table_faults
from spark_jobs.tables.masked_columns import why_mask_does_not_fit
from spark_jobs.tables.selected_columns import columns_that_come, why_incomplete, why_not_selectable


@dataclass(frozen=True)
class TableStopped:
    """A table that should be followed but cannot be at present."""

    name: QualifiedName
    error: CdcError


def stopped_tables(
    connection: Connection, pipeline: Pipeline, names: Sequence[QualifiedName], known: Collection[QualifiedName]
) -> tuple[TableStopped, ...]:
    """The lake's tables of ``names`` that cannot be followed, each with the reason; the others are not affected.

    ``known`` tables have been followed until now: faults of their keys or types show when changes are applied. Other
    tables are checked before they enter the publication: the source itself would refuse every UPDATE and DELETE of a
    published table without a key.
    """
    source, relations = pipeline.source, pipeline.relations(names)
    publication = find_publications(connection, source.publications) if source.has_publications else None
    source_tables, selections = tables_there(connection, relations), pipeline.column_selections
    published = (
        published_tables(connection, source.publications, relations, for_reading=False)
        if publication is not None
        else {}
    )
    coming = published if source.has_publications else source_tables
    keys = pipeline.declared_keys
    masks = pipeline.masks if pipeline.patterns is not None else {}  # a table's own entry was checked before
    configured = {
        *selections,
        *keys,
        *masks,
        *(table.relation for table in pipeline.tables or () if table.options != NO_OPTIONS),
    }
    checked = {relation for relation in relations if relation not in coming or relation in configured}
    entering = [name for name in names if name not in known or pipeline.relation(name) in checked]
    all_facts = relation_facts(connection, names=pipeline.relations(entering), keys=keys) if entering else ()
    facts = pipeline.by_name(entering, {fact.name: fact for fact in all_facts})
    altered = pipeline.alters_publication and (publication is None or publication.ours)
    foreign = (
        _foreign(connection, [relation for relation in relations if relation not in published])
        if altered and pipeline.patterns
        else ()
    )
    twice = tables_named_twice(connection, pipeline, names)

    def why_not(table: Table) -> CdcError | None:
        name = table.relation
        if table.name in twice:
            return named_twice(table)
        if name not in source_tables:
            return no_table(connection, name)
        if fault := source_tables[name].fault:
            return fault.error
        if publication is not None and not altered and (error := why_not_sent(publication, name)):
            return error
        if name in foreign:
            return PreconditionError(
                f"{name} cannot join publication {source.publications[0]}: role {connection.info.user} does not own it",
                hint=f"ALTER TABLE {name} OWNER TO ..., or leave it out: exclude: ['{name}']",
            )
        sent, selection = published.get(name), selections.get(name)
        if sent is not None and sent.error is not None:
            return sent.error
        if (of_table := facts.get(table.name)) is None:
            return None
        if name in masks and (misfit := why_mask_does_not_fit(of_table, masks[name])):
            return misfit
        if selection and (refused := why_not_selectable(of_table, selection, connection.info.server_version)):
            return refused
        if selection and sent and not altered and (error := why_incomplete(selection, name, sent.columns)):
            return error
        columns = columns_that_come(of_table, None if altered else sent, selection)
        faults = table_faults(
            of_table,
            binary=source.binary,
            sent=columns,
            published=sent is not None,
            form=table.form,
            key=keys.get(name, ()),
            options=table.options,
        )
        return next((fault.error for fault in faults), None)

    return tuple(TableStopped(name, error) for name in names if (error := why_not(pipeline.table(name))))


def tables_named_twice(
    connection: Connection, pipeline: Pipeline, names: Sequence[QualifiedName]
) -> Mapping[QualifiedName, TableThere]:
    """Those of ``names`` that a source table has which a pattern matches, too: that table is not replicated."""
    patterns = pipeline.patterns
    further = [name for name in names if pipeline.table(name).shows and patterns is not None and patterns.follows(name)]
    return tables_there(connection, further) if further else {}


def _foreign(connection: Connection, names: Sequence[QualifiedName]) -> frozenset[QualifiedName]:
    """The tables that a role may not add to a publication. One of them would hold up all that a pattern matches."""
    return frozenset(table.name for table in table_privileges(connection, names) if not table.owns)


def none_can_go_on(stopped: Sequence[TableStopped]) -> CdcError:
    """The error if all tables are ``stopped``: that of the first one, which says how many others there are."""
    first = stopped[0].error
    if len(stopped) == 1:
        return first
    others = ", ".join(str(table.name) for table in stopped[1:4])
    more = f" and {len(stopped) - 4} more" if len(stopped) > 4 else ""
    return type(first)(f"{first.what} (and {others}{more} cannot be replicated either)", hint=first.hint)


def require_readable(connection: Connection, source: Source, names: tuple[QualifiedName, ...]) -> None:
    """With ``source.binary``, raises PreconditionError for the first table whose values cannot be read in binary.
    Tables that do not exist are ignored here."""
    if not source.binary:
        return
    published = published_tables(connection, source.publications, names, for_reading=False)
    for facts in relation_facts(connection, names=names):
        sent = published.get(facts.name)
        if fault := binary_fault(sent.sent_of(facts) if sent is not None else facts):
            raise fault.error
