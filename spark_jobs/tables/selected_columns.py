"""``columns:`` of a table: the columns that our publication sends. No others may leave the database.

In changes the server leaves the others out by a column list; a snapshot's query does not select them.
https://www.postgresql.org/docs/current/logical-replication-col-lists.html
"""

from __future__ import annotations

from collections.abc import Sequence

from spark_jobs.configuration import ColumnSelection
from spark_jobs.errors import CdcError, ConfigurationError, PreconditionError
from spark_jobs.postgres.catalogue import relation_facts
from spark_jobs.postgres.publication import Publication, ensure_publications
from spark_jobs.postgres.publication_members import SCHEMAS_AND_LISTS_SINCE
from spark_jobs.postgres.published_tables import ColumnLists, PublishedTable, published_tables
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.relation_facts import RelationFacts
from spark_jobs.schema.table_faults import for_each_part
from spark_jobs.tables.at_source import AtSource


def publication_in_step(at_source: AtSource, names: Sequence[QualifiedName]) -> Publication:
    """The publication that sends the source tables ``names``: ours is created or altered to send just these, and of
    them just the columns that the configuration chose. See ``ensure_publications``."""
    wanted = names if at_source.pipeline.alters_publication else None
    lists = column_lists(at_source, names)
    return ensure_publications(at_source.connection, at_source.source.publications, wanted, lists)


def column_lists(at_source: AtSource, names: Sequence[QualifiedName]) -> ColumnLists:
    """The column lists of our publication, for those of ``names`` that have a selection, in ``attnum`` order."""
    chosen = at_source.pipeline.column_selections.items()
    selections = {name: selection for name, selection in chosen if name in names}
    facts = relation_facts(at_source.connection, names=tuple(selections)) if selections else ()
    return {table.name: selected_columns(table, selections[table.name]) for table in facts}


def selected_columns(facts: RelationFacts, selection: ColumnSelection) -> tuple[str, ...]:
    """The selected ones of the table's columns; never generated ones."""
    own = _own_columns(facts)
    if selection.include:
        return tuple(name for name in own if name in selection.include)
    return tuple(name for name in own if name not in selection.exclude)


def columns_read(
    facts: RelationFacts, sent: PublishedTable | None, selection: ColumnSelection | None
) -> tuple[str, ...]:
    """The columns that are read of a table. ``sent`` is None if no publication has the table yet, or if ours will be
    altered to fit."""
    if selection is not None:
        return selected_columns(facts, selection)
    return sent.columns if sent is not None else _own_columns(facts)


def why_not_selectable(facts: RelationFacts, selection: ColumnSelection, server_version: int) -> CdcError | None:
    """Why the selection is not possible with this server and table, None if it is."""
    own, field = _own_columns(facts), f"tables: {facts.name}: columns"
    if server_version < SCHEMAS_AND_LISTS_SINCE:
        return PreconditionError(
            f"{field}: PostgreSQL has column lists since version 15, this server is {server_version // 10_000}",
            hint="follow the whole table, or leave it out",
        )
    if unknown := [name for name in (*selection.include, *selection.exclude) if name not in own]:
        return ConfigurationError(
            f"{field}: {facts.name} has no column {', '.join(unknown)}, or it is generated",
            hint=f"expected some of {', '.join(own)}",
        )
    if facts.relreplident == "f" or None in facts.leaf_identities:
        return PreconditionError(
            f"{field}: {facts.name} or a partition of it has REPLICA IDENTITY FULL: with a column list in its"
            " publication the source would refuse every UPDATE and DELETE of it",
            hint=f"{_without_whole_rows(facts)}, or follow the whole table",
        )
    identities = [facts.key, facts.replica_identity, *(leaf for leaf in facts.leaf_identities if leaf)]
    chosen = selected_columns(facts, selection)
    if missing := sorted({name for identity in identities for name in identity if name not in chosen}):
        return ConfigurationError(
            f"{field}: leaves out {', '.join(missing)}, by which changes of {facts.name} find their row",
            hint="the key must be among the columns",
        )
    return None


def _without_whole_rows(facts: RelationFacts) -> str:
    if facts.leaf_identities:
        return for_each_part(facts.name, "ALTER TABLE ", " REPLICA IDENTITY DEFAULT")
    return f"ALTER TABLE {facts.name} REPLICA IDENTITY DEFAULT"


def require_withheld(at_source: AtSource) -> None:
    """Raises PreconditionError if the publication sends columns that the configuration leaves out. Then nothing may be
    read, as the change log would hold them."""
    connection, selections = at_source.connection, at_source.pipeline.column_selections
    if not selections:
        return
    facts = {table.name: table for table in relation_facts(connection, names=tuple(selections))}
    published = published_tables(connection, at_source.source.publications, tuple(selections), for_reading=False)
    for name, sent in published.items():
        if name in facts and (error := why_not_withheld(selections[name], facts[name], sent)):
            raise error


def why_not_withheld(
    selection: ColumnSelection, facts: RelationFacts, sent: PublishedTable
) -> PreconditionError | None:
    """The error if the publication sends columns that the configuration leaves out."""
    columns = selected_columns(facts, selection)
    unwanted = [column for column in sent.columns if column not in columns]
    if not unwanted:
        return None
    return PreconditionError(
        f"tables: {facts.name}: columns: the publication sends {', '.join(unwanted)}, which must not leave the"
        " database: nothing is read",
        hint="`postgres-cdc sync` alters a publication that is ours; give your own the same column list",
    )


def why_incomplete(selection: ColumnSelection, name: QualifiedName, sent: Sequence[str]) -> PreconditionError | None:
    """The error if a publication that we do not alter does not send columns that the configuration includes."""
    missing = [column for column in selection.include if column not in sent]
    if not missing:
        return None
    return PreconditionError(
        f"tables: {name}: columns: the publication does not send {', '.join(missing)}",
        hint="correct tables:, or the publication's column list",
    )


def _own_columns(facts: RelationFacts) -> tuple[str, ...]:
    return tuple(c.attname for c in sorted(facts.columns, key=lambda c: c.attnum) if not c.attgenerated)
