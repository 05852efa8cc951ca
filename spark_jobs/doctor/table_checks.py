"""Publication and tables: whether every configured table is sent, with a key that identifies its rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from spark_jobs.configuration import Pipeline
from spark_jobs.doctor.checks import Check, fail, ok, warn
from spark_jobs.options.table_mask import SALT_VARIABLE
from spark_jobs.postgres.connection import Connection
from spark_jobs.postgres.privileges import RolePrivileges
from spark_jobs.postgres.publication import Publication
from spark_jobs.postgres.published_tables import (
    PublishedTable,
    add_table,
    create_publication,
    publish_all,
    unseen_operations,
)
from spark_jobs.postgres.source_tables import SourceTable
from spark_jobs.qualified_name import QualifiedName, quoted_identifier
from spark_jobs.schema.relation_facts import RelationFacts
from spark_jobs.schema.table_faults import for_each_part
from spark_jobs.tables.at_source import AtSource
from spark_jobs.tables.selected_columns import column_lists
from spark_jobs.tables.stopped_tables import TablesAtSource

AREA = "tables"
_SAFE_SALT_BYTES = 16


def publication_and_table_checks(connection: Connection, pipeline: Pipeline, role: RolePrivileges) -> Iterator[Check]:
    """The publication first, if the plugin has one. Then one line per table that is ok, and one line per fault of the
    others."""
    at_source = AtSource(connection, pipeline).now()
    pipeline, source, publication = at_source.pipeline, at_source.source, at_source.publication
    relations = pipeline.relations(_wanted(pipeline, publication))
    names = [table.name for relation in relations for table in pipeline.tables_of(relation)]
    tables = TablesAtSource.of(at_source, names, thorough=True)
    if source.has_publications:
        if publication is None:
            yield _publication_to_be_made(at_source, role, tables.existing.values())
        else:
            yield _publication_check(pipeline, publication)
    for relation in relations:
        faults = list(_faults(tables, relation, role))
        yield from faults or [ok(AREA, str(relation), _in_order(tables, relation))]
        yield from _unseen(tables.published.get(relation))
    yield from _unmatched(pipeline, relations)
    yield from _salt_check(pipeline)


def _faults(tables: TablesAtSource, relation: QualifiedName, role: RolePrivileges) -> Iterator[Check]:
    """Those of the source table and of what the lake is to make of it, each once."""
    if relation in tables.existing:
        yield from _unreadable(tables.existing[relation], role)
    seen: set[str] = set()
    for table in tables.pipeline.tables_of(relation):
        for error in tables.faults(table):
            if error.what not in seen:
                yield fail(AREA, str(table.name), error.what.removeprefix(f"table {table.relation} "), error.hint)
            seen.add(error.what)


def _in_order(tables: TablesAtSource, relation: QualifiedName) -> str:
    """Its key, and which columns and rows are sent."""
    pipeline, sent = tables.pipeline, tables.published.get(relation)
    table = pipeline.tables_of(relation)[0]
    facts, columns = tables.facts[table.name], tables.columns(table)
    parts = [_rows_found_by(facts)]
    if len(columns) < len([column for column in facts.columns if not column.attgenerated]):
        parts.append(f"columns ({', '.join(columns)})")
    if sent is not None and sent.row_filter:
        parts.append(f"rows where {sent.row_filter}")
    if relation in pipeline.masks:
        parts.append(f"masked ({', '.join(pipeline.masks[relation].columns)})")
    return "; ".join(parts)


def _rows_found_by(facts: RelationFacts) -> str:
    if facts.key:
        index = ", the replica identity" if facts.relreplident == "i" else ""
        return f"key ({', '.join(facts.key)}){index}"
    return "no key: rows are matched by all columns" if facts.sends_whole_rows else "no key: only inserts can be sent"


def _unseen(sent: PublishedTable | None) -> Iterator[Check]:
    if sent is not None and sent.missing_operations:
        remedy = f"the lake shows them with the table's next snapshot; for all of them: {publish_all(sent.publication)}"
        yield warn(AREA, str(sent.name), unseen_operations(sent.missing_operations), remedy)


def _unmatched(pipeline: Pipeline, names: Sequence[QualifiedName]) -> Iterator[Check]:
    """Not an error: matching tables may be created later."""
    for pattern in pipeline.patterns.tables if pipeline.patterns is not None else ():
        if not any(map(pattern.matches, names)):
            remedy = "correct tables: or exclude: in the configuration, if it should match one"
            yield warn(AREA, str(pattern), "matches no table", remedy)


def _wanted(pipeline: Pipeline, publication: Publication | None) -> tuple[QualifiedName, ...]:
    if pipeline.tables is not None:
        return tuple(table.name for table in pipeline.tables)
    return publication.tables if publication else ()


def _publication_check(pipeline: Pipeline, publication: Publication) -> Check:
    what = f"publication {', '.join(pipeline.source.publications)}"
    if not publication.tables and not pipeline.alters_publication:
        return fail(AREA, what, "has no table", f"{add_table(publication.names[0])} ...")
    whose = "made by postgres-cdc" if publication.ours else "your own, used as it is"
    left_out = f", all but {', '.join(map(str, publication.excluded))}" if publication.excluded else ""
    number = len(publication.tables)
    return ok(AREA, what, f"{number:,} {'table' if number == 1 else 'tables'}{left_out}; {whose}")


def _publication_to_be_made(at_source: AtSource, role: RolePrivileges, tables: Iterable[SourceTable]) -> Check:
    pipeline = at_source.pipeline
    what = f"publication {', '.join(pipeline.source.publications)}"
    if len(pipeline.source.publications) > 1:
        return fail(
            AREA, what, "not all of them exist", "create them as you want them: publications in a list are your own"
        )
    if pipeline.tables is None or not pipeline.alters_publication:
        remedy = "list tables: in the configuration, or CREATE PUBLICATION as you want it"
        return fail(AREA, what, "does not exist, and the configuration names no tables", remedy)
    names = pipeline.relations(table.name for table in pipeline.tables)
    lists = column_lists(at_source, names)
    by_owner = f"have an owner create it: {create_publication(pipeline.source.publications[0], names, lists)}"
    foreign = [str(table.name) for table in tables if not table.owns]
    if foreign:
        return fail(AREA, what, f"does not exist, and {role.name} does not own {', '.join(foreign)}", by_owner)
    if not role.may_create_in_database:
        database = quoted_identifier(at_source.connection.info.dbname)
        remedy = f"GRANT CREATE ON DATABASE {database} TO {quoted_identifier(role.name)}, or {by_owner}"
        return fail(AREA, what, f"does not exist, and {role.name} may not create in this database", remedy)
    return ok(AREA, what, "does not exist yet: sync creates it")


def _unreadable(table: SourceTable, role: RolePrivileges) -> Iterator[Check]:
    name, grantee = str(table.name), quoted_identifier(role.name)
    if not table.may_use_schema:
        remedy = f"GRANT USAGE ON SCHEMA {quoted_identifier(table.name.nspname)} TO {grantee}"
        yield fail(AREA, name, f"no USAGE on schema {table.name.nspname}", remedy)
    if not table.may_select:
        grant, to = "GRANT SELECT ON ", f" TO {grantee}"
        if table.is_partitioned:
            remedy = for_each_part(table.name, grant, to)
            yield fail(AREA, name, "no SELECT on it or on one of its partitions", remedy)
        else:
            yield fail(AREA, name, "no SELECT", f"{grant}{table.name}{to}")
    if table.row_security:
        remedy = f"a snapshot must see every row: ALTER ROLE {grantee} BYPASSRLS"
        yield fail(AREA, name, "row security hides rows from the role", remedy)


def _salt_check(pipeline: Pipeline) -> Iterator[Check]:
    """The salt's length. It is set, or there would be no pipeline to check."""
    salts = {mask.salt for mask in pipeline.masks.values()}
    for salt in salts:
        if len(salt) < _SAFE_SALT_BYTES:
            weakness = f"{SALT_VARIABLE} has {len(salt)} bytes: whoever guesses it can find masked values by trial"
            yield warn(AREA, "mask", weakness, "set a longer one; the next sync then reads the masked tables again")
        else:
            yield ok(AREA, "mask", f"{SALT_VARIABLE} is set")
