"""Which tables a pipeline follows, and that each can be followed, before anything is made or changed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Pipeline, Source
from spark_jobs.decode.binary.wire_type import unreadable_in_binary
from spark_jobs.errors import CdcError, ConfigurationError, PreconditionError
from spark_jobs.postgres.catalogue import relation_facts
from spark_jobs.postgres.connection import Connection, connected
from spark_jobs.postgres.membership import configured_memberships, memberships
from spark_jobs.postgres.publication import find_publications, why_not_sent
from spark_jobs.postgres.test_decoding_options import PLUGIN as TEST_DECODING
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.relation_facts import RelationFacts


@dataclass(frozen=True)
class TableStopped:
    """A table that is to be followed and cannot be, as things are."""

    name: QualifiedName
    error: CdcError


def configured_names(pipeline: Pipeline) -> tuple[QualifiedName, ...] | None:
    """The names under ``tables:``; None: every table of the publication. Raises ConfigurationError: an unbuilt mode."""
    if pipeline.tables is None:
        if pipeline.source.plugin == TEST_DECODING:
            raise ConfigurationError(
                "tables: is missing: plugin: test_decoding reads no publication that would name them",
                hint="list the tables to follow",
            )
        return None
    for table in pipeline.tables:
        if table.mode != "mirror":
            what = f"tables: {table.name}: mode {table.mode} is not in this version"
            raise ConfigurationError(what, hint="use mirror")
    return tuple(table.name for table in pipeline.tables)


def followed_names(connection: Connection, pipeline: Pipeline) -> tuple[QualifiedName, ...]:
    """The tables to follow, in the configuration's order. Raises PreconditionError: no publication names them."""
    names = configured_names(pipeline)
    if names is not None:
        return names
    publication = find_publications(connection, pipeline.source.publications)
    if publication is None:
        raise PreconditionError(
            f"there is no publication {', '.join(pipeline.source.publications)}, and the configuration names no tables",
            hint="list tables: in the configuration, or CREATE PUBLICATION as you want it",
        )
    return publication.tables


def all_followed_names(pipeline: Pipeline) -> tuple[QualifiedName, ...]:
    """``followed_names``, asking the source only where the configuration names no tables."""
    names = configured_names(pipeline)
    if names is not None:
        return names
    with connected(pipeline.source.dsn) as connection:
        return followed_names(connection, pipeline)


def followed_since(checkpoint: WindowMarker | None, names: Sequence[QualifiedName]) -> dict[QualifiedName, int]:
    """With test_decoding: from which window on the log holds the changes of each without a break; those that it does
    not hold yet from the next one on."""
    before = (
        {QualifiedName(each.nspname, each.relname): each.since for each in checkpoint.followed} if checkpoint else {}
    )
    following = checkpoint.ordinal + 1 if checkpoint else 1
    return {name: before.get(name, following) for name in names}


def current_memberships(
    connection: Connection, pipeline: Pipeline, names: Sequence[QualifiedName], checkpoint: WindowMarker | None
) -> dict[QualifiedName, str]:
    """By what each table's changes come now, see ``spark_jobs.postgres.membership``; without those that do not."""
    if pipeline.source.plugin != TEST_DECODING:
        return memberships(connection, pipeline.source.publications, names)
    relids = {facts.name: facts.relid for facts in relation_facts(connection, names=names)}
    return configured_memberships(relids, followed_since(checkpoint, names))


def stopped_tables(
    connection: Connection, pipeline: Pipeline, names: Sequence[QualifiedName], known: Collection[QualifiedName]
) -> tuple[TableStopped, ...]:
    """Those of ``names`` that cannot be followed, each with the reason; the others can go on without them.

    ``known`` have been followed until now. What is wrong with their key or their types shows when changes are applied;
    the others are asked before they enter the publication: the source itself would refuse every UPDATE and DELETE of a
    published table without a key.
    """
    found = {facts.name: facts for facts in relation_facts(connection, names=names)}
    source = pipeline.source
    publication = find_publications(connection, source.publications) if source.plugin == "pgoutput" else None
    sent = memberships(connection, source.publications, names) if source.plugin == "pgoutput" else known
    altered = pipeline.alters_publication and (publication is None or publication.ours)

    def why_not(name: QualifiedName) -> PreconditionError | None:
        if name not in found:
            return PreconditionError(
                f"there is no table {name} in database {connection.info.dbname}",
                hint="correct tables: in the configuration",
            )
        if publication is not None and not altered and (error := why_not_sent(publication, name)):
            return error
        return why_unusable(found[name], source) if name not in known or name not in sent else None

    return tuple(TableStopped(name, error) for name in names if (error := why_not(name)))


def why_unusable(facts: RelationFacts, source: Source) -> PreconditionError | None:
    """What keeps a table that is there from being followed."""
    if not facts.key:
        return PreconditionError(
            f"table {facts.name} has no usable key",
            hint=f"give it a primary key, or ALTER TABLE {facts.name} REPLICA IDENTITY USING INDEX a unique one",
        )
    generated = [column.attname for column in facts.columns if column.attgenerated and column.attname in facts.key]
    if generated:
        return PreconditionError(
            f"table {facts.name} has a generated column in its key: {', '.join(generated)}",
            hint=f"ALTER TABLE {facts.name} REPLICA IDENTITY USING INDEX one without generated columns",
        )
    return why_unreadable(facts, source)


def why_unreadable(facts: RelationFacts, source: Source) -> PreconditionError | None:
    """Values that ``source.binary`` brings in a form nobody here can read."""
    unreadable = unreadable_in_binary(facts) if source.plugin == "pgoutput" and source.binary else ()
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
