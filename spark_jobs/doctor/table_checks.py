"""Publication and tables: does every configured table come, whole, with a key its changes can be found by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spark_jobs.configuration import Pipeline, Source
from spark_jobs.doctor.checks import Check, fail, ok
from spark_jobs.postgres.catalogue import relation_facts
from spark_jobs.postgres.connection import Connection
from spark_jobs.postgres.privileges import RolePrivileges, TablePrivileges, table_privileges
from spark_jobs.postgres.publication import Publication, find_publications
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.relation_facts import RelationFacts
from spark_jobs.schema.reserved_columns import NAME_REMEDY, name_fault
from spark_jobs.schema.wire_type import unreadable_in_binary

AREA = "tables"


def publication_and_table_checks(connection: Connection, pipeline: Pipeline, role: RolePrivileges) -> Iterator[Check]:
    """The publication first, where the plugin has one, then one line per table that is in order, one line per fault of
    one that is not."""
    published = pipeline.source.has_publications
    publication = find_publications(connection, pipeline.source.publications) if published else None
    names = _wanted(pipeline, publication)
    privileges = {table.name: table for table in table_privileges(connection, names)}
    if published:
        yield _publication_check(pipeline, publication, role, tuple(privileges.values()))
    facts = {fact.name: fact for fact in relation_facts(connection, names=names)}
    for name in names:
        if name not in privileges or name not in facts:
            yield fail(AREA, str(name), "there is no such table", "correct tables: in the configuration")
            continue
        faults = (
            *_faults(privileges[name], facts[name], role, publication),
            *_name_faults(facts[name], publication),
            *_binary_faults(facts[name], pipeline.source),
        )
        yield from faults or [ok(AREA, str(name), f"key ({', '.join(facts[name].key)})")]


def _wanted(pipeline: Pipeline, publication: Publication | None) -> tuple[QualifiedName, ...]:
    if pipeline.tables is not None:
        return tuple(table.name for table in pipeline.tables)
    return publication.tables if publication else ()


def _publication_check(
    pipeline: Pipeline, publication: Publication | None, role: RolePrivileges, tables: Sequence[TablePrivileges]
) -> Check:
    what = f"publication {', '.join(pipeline.source.publications)}"
    if publication is None:
        return _publication_to_be_made(pipeline, role, tables)
    if publication.missing_operations:
        remedy = f"ALTER PUBLICATION {publication.name} SET (publish = 'insert, update, delete, truncate')"
        return fail(AREA, what, f"leaves out {', '.join(publication.missing_operations)}", remedy)
    if not publication.tables and pipeline.tables is None:
        return fail(AREA, what, "has no table", f"ALTER PUBLICATION {publication.name} ADD TABLE ...")
    whose = "made by postgres-cdc" if publication.ours else "your own, used as it is"
    return ok(AREA, what, f"{len(publication.tables)} tables; {whose}")


def _publication_to_be_made(pipeline: Pipeline, role: RolePrivileges, tables: Sequence[TablePrivileges]) -> Check:
    what = f"publication {', '.join(pipeline.source.publications)}"
    if len(pipeline.source.publications) > 1:
        return fail(AREA, what, "not all are there", "CREATE PUBLICATION as you want them: listed ones are your own")
    if pipeline.tables is None:
        remedy = "list tables: in the configuration, or CREATE PUBLICATION as you want it"
        return fail(AREA, what, "not there, and the configuration names no tables", remedy)
    names = ", ".join(str(table.name) for table in pipeline.tables)
    by_owner = (
        f"have it made by an owner: CREATE PUBLICATION {', '.join(pipeline.source.publications)} FOR TABLE {names}"
    )
    foreign = [str(table.name) for table in tables if not (table.owns or role.superuser)]
    if foreign:
        return fail(AREA, what, f"not there, and {role.name} does not own {', '.join(foreign)}", by_owner)
    if not role.may_create_in_database:
        remedy = f'GRANT CREATE ON DATABASE to "{role.name}", or {by_owner}'
        return fail(AREA, what, f"not there, and {role.name} may not create in this database", remedy)
    return ok(AREA, what, "not there yet: sync makes it")


def _faults(
    table: TablePrivileges, facts: RelationFacts, role: RolePrivileges, publication: Publication | None
) -> Iterator[Check]:
    name = str(table.name)
    if table.relpersistence != "p":
        yield fail(AREA, name, "unlogged: its changes are not in the WAL", f"ALTER TABLE {name} SET LOGGED")
    if not table.may_use_schema:
        remedy = f'GRANT USAGE ON SCHEMA {table.name.nspname} TO "{role.name}"'
        yield fail(AREA, name, f"no USAGE on schema {table.name.nspname}", remedy)
    if not table.may_select:
        yield fail(AREA, name, "no SELECT", f'GRANT SELECT ON {name} TO "{role.name}"')
    if table.row_security:
        remedy = f'ALTER ROLE "{role.name}" BYPASSRLS: a snapshot must see every row'
        yield fail(AREA, name, "row security hides rows from the role", remedy)
    if not facts.key:
        remedy = f"give it a primary key, or ALTER TABLE {name} REPLICA IDENTITY USING INDEX a unique one"
        yield fail(AREA, name, f"no usable key (replica identity {facts.relreplident})", remedy)
    yield from _publication_faults(table, role, publication)


def _name_faults(facts: RelationFacts, publication: Publication | None) -> Iterator[Check]:
    stored = publication is not None and publication.sends_generated
    if fault := name_fault(facts, stored=stored):
        yield fail(AREA, str(facts.name), fault, NAME_REMEDY.format(table=facts.name))


def _binary_faults(facts: RelationFacts, source: Source) -> Iterator[Check]:
    if source.binary:
        for column in unreadable_in_binary(facts):
            what = f"column {column.attname} ({column.typname}) cannot be read in binary"
            yield fail(AREA, str(facts.name), what, "set source.binary: false, or take the table out of tables:")


def _publication_faults(
    table: TablePrivileges, role: RolePrivileges, publication: Publication | None
) -> Iterator[Check]:
    name = str(table.name)
    if publication is None:
        return
    if table.name not in publication.tables:
        remedy = f"ALTER PUBLICATION {publication.name} ADD TABLE {name}"
        if not publication.ours:
            yield fail(AREA, name, f"not in publication {publication.name}, which is your own", remedy)
        elif not (table.owns or role.superuser):
            yield fail(
                AREA, name, f"not in the publication, and {role.name} does not own it", f"by its owner: {remedy}"
            )
    elif table.name in publication.filtered_tables:
        remedy = "this version follows whole tables; use a publication without filters"
        yield fail(AREA, name, "the publication has a row filter or column list on it", remedy)
