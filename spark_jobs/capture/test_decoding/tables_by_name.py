"""The followed tables and their partitions by name, from the catalogue: ``test_decoding`` uses no publication.

A partition's changes count for the topmost followed table above it, as with ``publish_via_partition_root``.
"""

from __future__ import annotations

from collections.abc import Sequence

from spark_jobs.capture.test_decoding.line_tables import LineTable, LineTables, relation_message
from spark_jobs.logicalrep.test_decoding.lines import TableName
from spark_jobs.postgres.catalogue import relation_facts
from spark_jobs.postgres.connection import Connection, source_errors
from spark_jobs.postgres.partition_tree import partition_tree_sql
from spark_jobs.postgres.source_tables import source_tables
from spark_jobs.qualified_name import QualifiedName

# tables with the most partitions first: below a followed partition of a followed table, the upper one counts
_PARTITIONS = f"""
WITH RECURSIVE {partition_tree_sql("unnest(%s::oid[]) given(oid)")}
SELECT t.root::bigint, jsonb_agg(jsonb_build_array(n.nspname, c.relname))
FROM tree t JOIN pg_catalog.pg_class c ON c.oid = t.member JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE t.member <> t.root GROUP BY t.root ORDER BY count(*) DESC
"""  # noqa: S608  # a constant


def line_tables(connection: Connection, names: Sequence[QualifiedName]) -> LineTables:
    """The tables as the catalogue has them now. A dropped table keeps its name and gets a negative relid. Raises
    SourceError."""
    facts = relation_facts(connection, names=names)
    by_relid = {fact.relid: LineTable(fact.relid, _pair(fact.name), relation_message(fact)) for fact in facts}
    by_name = {table.name: table for table in by_relid.values()}
    for number, name in enumerate(names, start=1):
        by_name.setdefault(_pair(name), LineTable(-number, _pair(name), b""))
    with source_errors("the catalogue could not be read"):
        partitioned = connection.execute(_PARTITIONS, [list(by_relid)]).fetchall()
    partition_names: dict[TableName, LineTable] = {}
    for relid, partitions in partitioned:
        for nspname, relname in partitions:
            partition_names.setdefault((nspname, relname), by_relid[relid])

    def is_gone(name: TableName) -> bool:
        return not source_tables(connection, [QualifiedName(*name)])

    return LineTables(by_name | partition_names, tuple(relid for relid, _ in partitioned), is_gone)


def _pair(name: QualifiedName) -> TableName:
    return name.nspname, name.relname
