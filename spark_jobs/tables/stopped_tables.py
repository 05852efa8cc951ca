"""Which of the followed tables cannot go on, and why: asked of the source before anything is made or read."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from spark_jobs.configuration import Pipeline, Source
from spark_jobs.errors import CdcError, PreconditionError
from spark_jobs.postgres.catalogue import relation_facts, tables_there
from spark_jobs.postgres.connection import Connection
from spark_jobs.postgres.publication import find_publications, why_not_sent
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.relation_facts import RelationFacts
from spark_jobs.schema.reserved_columns import NAME_REMEDY, name_fault
from spark_jobs.schema.wire_type import unreadable_in_binary


@dataclass(frozen=True)
class TableStopped:
    """A table that is to be followed and cannot be, as things are."""

    name: QualifiedName
    error: CdcError


def stopped_tables(
    connection: Connection, pipeline: Pipeline, names: Sequence[QualifiedName], known: Collection[QualifiedName]
) -> tuple[TableStopped, ...]:
    """Those of ``names`` that cannot be followed, each with the reason; the others can go on without them.

    ``known`` have been followed until now. What is wrong with their key or their types shows when changes are applied;
    the others are asked before they enter the publication: the source itself would refuse every UPDATE and DELETE of a
    published table without a key.
    """
    source = pipeline.source
    publication = find_publications(connection, source.publications) if source.has_publications else None
    there = tables_there(connection, names)
    sent = there if not source.has_publications else publication.tables if publication is not None else ()
    entering = [name for name in names if name not in known or name not in sent]
    facts = {found.name: found for found in relation_facts(connection, names=entering)} if entering else {}
    altered = pipeline.alters_publication and (publication is None or publication.ours)

    def why_not(name: QualifiedName) -> PreconditionError | None:
        if name not in there:
            return PreconditionError(
                f"there is no table {name} in database {connection.info.dbname}",
                hint="correct tables: in the configuration",
            )
        if there[name].unlogged:
            return PreconditionError(
                f"{there[name].unlogged} is unlogged: its changes are not in the WAL",
                hint=f"ALTER TABLE {there[name].unlogged} SET LOGGED; a new snapshot follows by itself",
            )
        if publication is not None and not altered and (error := why_not_sent(publication, name)):
            return error
        stored = publication is not None and publication.sends_generated
        return why_unusable(facts[name], source, stored=stored) if name in facts else None

    return tuple(TableStopped(name, error) for name in names if (error := why_not(name)))


def why_unusable(facts: RelationFacts, source: Source, *, stored: bool = False) -> PreconditionError | None:
    """What keeps a table that is there from being followed. ``stored``: generated columns that are stored are sent."""
    if not facts.key and facts.leaf_identities:
        return PreconditionError(
            f"table {facts.name} has no key that each of its partitions sends with its changes",
            hint="give root and partitions the same primary key, or the same REPLICA IDENTITY",
        )
    if not facts.key:
        return PreconditionError(
            f"table {facts.name} has no usable key",
            hint=f"give it a primary key, or ALTER TABLE {facts.name} REPLICA IDENTITY USING INDEX a unique one",
        )
    unsent = ("s", "v") if not stored else ("v",)
    generated = [c.attname for c in facts.columns if c.attgenerated in unsent and c.attname in facts.key]
    if generated:
        return PreconditionError(
            f"table {facts.name} has a generated column in its key: {', '.join(generated)}",
            hint=f"ALTER TABLE {facts.name} REPLICA IDENTITY USING INDEX one without generated columns",
        )
    if fault := name_fault(facts, stored=stored):
        return PreconditionError(f"table {facts.name} has {fault}", hint=NAME_REMEDY.format(table=facts.name))
    return why_unreadable(facts, source)


def why_unreadable(facts: RelationFacts, source: Source) -> PreconditionError | None:
    """Values that ``source.binary`` brings in a form nobody here can read."""
    unreadable = unreadable_in_binary(facts) if source.binary else ()
    if not unreadable:
        return None
    columns = ", ".join(f"{column.attname} ({column.typname})" for column in unreadable)
    return PreconditionError(
        f"table {facts.name} has columns that cannot be read in binary: {columns}",
        hint="set source.binary: false, or take the table out of tables:",
    )


def require_readable(connection: Connection, source: Source, names: tuple[QualifiedName, ...]) -> None:
    """Raises PreconditionError for the first table that ``why_unreadable`` has something to say of. A table that is not
    there is somebody else's error."""
    for facts in relation_facts(connection, names=names):
        if error := why_unreadable(facts, source):
            raise error
