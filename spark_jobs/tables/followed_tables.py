"""Which tables a pipeline follows, and since when the log has their changes."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from spark_jobs.change_log.window_marker import FollowedSince, WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import ConfigurationError, PreconditionError
from spark_jobs.postgres.fingerprints import Watched
from spark_jobs.postgres.published_tables import add_table
from spark_jobs.qualified_name import QualifiedName, names_like


def configured_names(pipeline: Pipeline) -> tuple[QualifiedName, ...] | None:
    """The lake's tables of those under ``tables:``; None means every table of the publication.

    Raises ConfigurationError if test_decoding is used without ``tables:``; with ``columns:``, as it sends every column;
    or with ``drop: keep``.
    """
    if pipeline.tables is None:
        if not pipeline.source.has_publications:
            raise ConfigurationError(
                f"tables: is missing: plugin: {pipeline.source.plugin} reads no publication that would name them",
                hint="list the tables to follow",
            )
        return None
    for table in pipeline.tables:
        if table.columns is not None and not pipeline.source.has_publications:
            what = f"tables: {table.name}: columns: plugin: test_decoding sends every column"
            raise ConfigurationError(what, hint="use plugin: pgoutput")
        if pipeline.schema_policy(table.name).drop == "keep" and not pipeline.source.has_publications:
            what = f"tables: {table.name}: on_schema_change: drop: keep cannot be used with plugin: test_decoding"
            raise ConfigurationError(what, hint="use plugin: pgoutput, or drop: follow")
    return tuple(table.name for table in pipeline.tables)


def configured_relations(pipeline: Pipeline) -> tuple[QualifiedName, ...] | None:
    """The source tables of ``configured_names``, and raises as that does."""
    names = configured_names(pipeline)
    return None if names is None else pipeline.relations(names)


def nothing_followed(pipeline: Pipeline) -> PreconditionError:
    """The error if there is not a single table."""
    if pipeline.patterns is not None:
        excluded = f" without {', '.join(map(str, pipeline.patterns.exclude))}" if pipeline.patterns.exclude else ""
        patterns = ", ".join(map(str, pipeline.patterns.tables)) or "the publication's"
        return PreconditionError(
            f"the source has no table that matches tables: {patterns}{excluded}",
            hint="correct tables: or exclude: in the configuration",
        )
    publications = pipeline.source.publications
    return PreconditionError(
        f"publication {', '.join(publications)} has no table",
        hint=f"{add_table(publications[0])} ..., or list tables: in the configuration",
    )


def require_followed(names: Collection[QualifiedName], followed: Collection[QualifiedName]) -> None:
    """Raises ConfigurationError if one of ``names`` is not followed; its hint is the names that are most like it."""
    if not (unknown := [name for name in names if name not in followed]):
        return
    near = names_like(unknown, followed)
    one = "1 table" if len(followed) == 1 else f"{len(followed):,} tables"
    raise ConfigurationError(
        f"not replicated by this pipeline: {', '.join(map(str, unknown))}",
        hint=f"did you mean {' or '.join(map(str, near))}?"
        if near
        else f"it replicates {one}: `postgres-cdc status` lists them",
    )


def followed_since(checkpoint: WindowMarker | None, names: Sequence[QualifiedName]) -> dict[QualifiedName, int]:
    """For test_decoding: the window since which the log holds each source table's changes without interruption. For
    tables that are new, the window after ``checkpoint``."""
    followed = checkpoint.followed if checkpoint else ()
    before = {table.name: table.since for table in followed}
    following = checkpoint.ordinal + 1 if checkpoint else 1
    return {name: before.get(name, following) for name in names}


def followed_lines(pipeline: Pipeline, checkpoint: WindowMarker) -> tuple[FollowedSince, ...]:
    """``WindowMarker.followed`` for windows read after ``checkpoint``; empty with pgoutput."""
    if pipeline.source.has_publications:
        return ()
    names = configured_relations(pipeline) or ()
    since = followed_since(checkpoint, names)
    return tuple(FollowedSince(name.nspname, name.relname, since[name]) for name in names)


def watched_tables(pipeline: Pipeline, names: Sequence[QualifiedName], checkpoint: WindowMarker | None) -> Watched:
    """The source tables of ``names`` as ``fingerprints`` needs them: with the publications that send their changes or,
    for a plugin without publications, the window since which the log has them."""
    names = pipeline.relations(names)
    if pipeline.source.has_publications:
        return Watched(names, pipeline.source.publications, {}, pipeline.declared_keys, pipeline.masks)
    since = followed_since(checkpoint, names)
    return Watched(names, (), {name: f"window {since[name]}" for name in names}, pipeline.declared_keys)
