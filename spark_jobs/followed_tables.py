"""Which tables a pipeline follows, and that each can be followed, before anything is made or changed."""

from __future__ import annotations

from spark_jobs.configuration import Pipeline, Source
from spark_jobs.decode.binary.wire_type import unreadable_in_binary
from spark_jobs.errors import ConfigurationError, PreconditionError
from spark_jobs.postgres.catalogue import facts_by_name, relation_facts
from spark_jobs.postgres.connection import Connection, connected
from spark_jobs.postgres.publication import find_publications
from spark_jobs.postgres.test_decoding_options import PLUGIN as TEST_DECODING
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.relation_facts import RelationFacts


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


def usable_facts(connection: Connection, names: tuple[QualifiedName, ...]) -> tuple[RelationFacts, ...]:
    """The catalogue's facts of tables that are about to be followed, in the order of ``names``.

    Raises PreconditionError for a table whose updates could not find their row: publishing it would make the source
    itself refuse every UPDATE and DELETE of it.
    """
    found = {facts.name: facts for facts in facts_by_name(connection, names)}
    for name in names:
        if not found[name].key:
            raise PreconditionError(
                f"table {name} has no usable key",
                hint=f"give it a primary key, or ALTER TABLE {name} REPLICA IDENTITY USING INDEX a unique one",
            )
    return tuple(found[name] for name in names)


def require_readable(connection: Connection, source: Source, names: tuple[QualifiedName, ...]) -> None:
    """Raises PreconditionError for a table with values that ``source.binary`` brings in a form nobody here can read.

    A table that is not there is somebody else's error.
    """
    if source.plugin != "pgoutput" or not source.binary:
        return
    for facts in relation_facts(connection, names=names):
        unreadable = unreadable_in_binary(facts)
        if unreadable:
            columns = ", ".join(f"{column.attname} ({column.typname})" for column in unreadable)
            raise PreconditionError(
                f"table {facts.name} has columns that cannot be read in binary: {columns}",
                hint="set source.binary: false, or take the table out of tables:",
            )
