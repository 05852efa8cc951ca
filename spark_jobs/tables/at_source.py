"""A pipeline at its source: the tables that its patterns match there, and the publications that it reads. This is the
one place where a pattern becomes names.

Code that reads the slot queries the source again (``AtSource.now``), because a table with columns to mask may have been
created since. Code that only writes tables uses the names that were found first (``resolved``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from spark_jobs.change_log.log import ChangeLog
from spark_jobs.configuration import Pipeline, Source, TablePatterns
from spark_jobs.errors import SourceUnreachableError
from spark_jobs.lake.table_folders import names_in_lake
from spark_jobs.postgres.catalogue import publishable_tables
from spark_jobs.postgres.connection import Connection, connected
from spark_jobs.postgres.publication import Publication, find_publications, no_publication
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.tables.followed_tables import configured_names, configured_relations


@dataclass(frozen=True)
class AtSource:
    """A ``pipeline`` and a session at its source."""

    connection: Connection
    pipeline: Pipeline

    def again(self) -> AtSource:
        """The same, with its publications as they are by now."""
        return AtSource(self.connection, self.pipeline)

    def now(self) -> AtSource:
        """With the tables that its patterns match now, and its publications as they are now."""
        now = self.again()
        if (patterns := self.pipeline.patterns) is None:
            return now
        return replace(now, pipeline=_with_tables(self.pipeline, patterns.of(now._candidates(patterns))))

    @property
    def log(self) -> ChangeLog:
        return ChangeLog(self.pipeline.lake.change_log)

    @property
    def source(self) -> Source:
        return self.pipeline.source

    @cached_property
    def publication(self) -> Publication | None:
        """The publications that it reads, as one, when they were first asked for; None if one is missing, or if the
        plugin has none."""
        names = self.source.publications if self.source.has_publications else ()
        return find_publications(self.connection, names) if names else None

    def _candidates(self, patterns: TablePatterns) -> tuple[QualifiedName, ...]:
        """The tables among which patterns choose: those of the publication, unless it is kept in step with them."""
        may_alter = patterns.tables and (self.publication is None or self.publication.ours)
        if may_alter or not self.source.has_publications:
            return publishable_tables(self.connection)
        return self.publication.tables if self.publication is not None else ()

    def followed_names(self) -> tuple[QualifiedName, ...]:
        """The tables to follow: the configuration's, in its order, otherwise the publication's. Raises
        PreconditionError if there is neither."""
        names, pipeline = configured_names(self.pipeline), self.pipeline
        if names or (names is not None and not pipeline.tables_of_publication):
            return names
        publication = self._publication_that_names()
        return publication.tables if names is None else names

    def looked_at_names(self) -> tuple[QualifiedName, ...]:
        """The source tables of ``followed_names``, and those that their publication excludes. A publication FOR ALL
        TABLES keeps no trace of a table that was excluded for a time: only a look at the catalogue during that time
        shows it."""
        names, patterns = configured_relations(self.pipeline), self.pipeline.patterns
        if names is not None and (patterns is None or not self.source.has_publications):
            return names
        publication = self.again()._publication_that_names()
        excluded = (*publication.excluded, *publication.excluded_partitions)
        if names is None or patterns is None:
            return tuple(dict.fromkeys((*publication.tables, *excluded)))
        return tuple(dict.fromkeys((*names, *filter(patterns.follows, excluded))))

    def _publication_that_names(self) -> Publication:
        if self.publication is None:
            raise no_publication(self.source.publications)
        return self.publication


def resolved(pipeline: Pipeline) -> Pipeline:
    """The pipeline with tables, if it has patterns: those that were found earlier, otherwise those that match now. If
    the source cannot be reached, those that match in the lake. Raises SourceError if there are none either."""
    if pipeline.patterns is None or pipeline.tables is not None:
        return pipeline
    try:
        with connected(pipeline.source.dsn) as connection:
            return AtSource(connection, pipeline).now().pipeline
    except SourceUnreachableError:
        lake_pipeline = matching_in_lake(pipeline)
        if not lake_pipeline.tables:
            raise
        return lake_pipeline


def all_followed_names(pipeline: Pipeline) -> tuple[QualifiedName, ...]:
    """``followed_names``; connects to the source only if the configuration names no tables."""
    pipeline = resolved(pipeline)
    names = configured_names(pipeline)
    if names is not None:
        return names
    with connected(pipeline.source.dsn) as connection:
        return AtSource(connection, pipeline).followed_names()


def matching_in_lake(pipeline: Pipeline) -> Pipeline:
    """The pipeline with the tables to follow as far as the lake tells; unchanged if it has no patterns. Raises
    LakeError if the lake cannot be listed."""
    if pipeline.patterns is None:
        return pipeline
    return _with_tables(pipeline, pipeline.patterns.of(name for name in names_in_lake(pipeline.lake) if name.nspname))


def _with_tables(pipeline: Pipeline, relations: tuple[QualifiedName, ...]) -> Pipeline:
    """With the lake's tables of these source tables. Where a source table has the name that another one's has in a
    further mode, only the latter is among them (``stopped_tables`` stops it)."""
    assert pipeline.patterns is not None
    if pipeline.tables is not None and relations == tuple(dict.fromkeys(table.relation for table in pipeline.tables)):
        return pipeline
    tables = [table for relation in relations for table in pipeline.tables_of(relation)]
    further = {table.name for table in tables if table.shows}
    return replace(
        pipeline,
        tables=tuple(table for table in tables if table.relation not in further),
        tables_of_publication=not pipeline.patterns.tables,
    )
