"""The tables that the configuration's patterns match: the one place where a pattern becomes names.

Code that reads the slot queries the source again (``refreshed``), because a table with columns to mask may have been
created since. Code that only writes tables uses the names that were found first (``resolved``).
"""

from __future__ import annotations

from dataclasses import replace

from spark_jobs.configuration import Pipeline, TablePatterns
from spark_jobs.errors import SourceUnreachableError
from spark_jobs.lake.table_folders import names_in_lake
from spark_jobs.postgres.catalogue import publishable_tables
from spark_jobs.postgres.connection import Connection, connected
from spark_jobs.postgres.publication import find_publications
from spark_jobs.qualified_name import QualifiedName


def refreshed(connection: Connection, pipeline: Pipeline) -> Pipeline:
    """The pipeline with the tables that its patterns match now; unchanged if it has no patterns."""
    if pipeline.patterns is None:
        return pipeline
    return _with_tables(pipeline, pipeline.patterns.of(_candidates(connection, pipeline, pipeline.patterns)))


def resolved(pipeline: Pipeline) -> Pipeline:
    """The pipeline with tables, if it has patterns: those that were found earlier, otherwise those that match now. If
    the source cannot be reached, those that match in the lake. Raises SourceError if there are none either."""
    if pipeline.patterns is None or pipeline.tables is not None:
        return pipeline
    try:
        with connected(pipeline.source.dsn) as connection:
            return refreshed(connection, pipeline)
    except SourceUnreachableError:
        lake_pipeline = matching_in_lake(pipeline)
        if not lake_pipeline.tables:
            raise
        return lake_pipeline


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


def _candidates(connection: Connection, pipeline: Pipeline, patterns: TablePatterns) -> tuple[QualifiedName, ...]:
    """The tables among which patterns choose: those of the publication, unless it is kept in step with them."""
    if not pipeline.source.has_publications:
        return publishable_tables(connection)
    publication = find_publications(connection, pipeline.source.publications)
    if patterns.tables and (publication is None or publication.ours):
        return publishable_tables(connection)
    return publication.tables if publication is not None else ()
