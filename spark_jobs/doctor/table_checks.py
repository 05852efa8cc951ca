"""Publication and tables: whether every configured table is sent, with a key that identifies its rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spark_jobs.configuration import ColumnSelection, Pipeline, named_twice
from spark_jobs.doctor.checks import Check, fail, ok, warn
from spark_jobs.postgres.catalogue import TableThere, relation_facts, tables_there
from spark_jobs.postgres.connection import Connection
from spark_jobs.postgres.privileges import RolePrivileges, TablePrivileges, table_privileges
from spark_jobs.postgres.publication import Publication, find_publications, how_to_add
from spark_jobs.postgres.published_tables import (
    PublishedTable,
    add_table,
    create_publication,
    publish_all,
    published_tables,
    unseen_operations,
)
from spark_jobs.qualified_name import QualifiedName, quoted_identifier
from spark_jobs.schema.relation_facts import RelationFacts
from spark_jobs.schema.table_faults import TableFault, for_each_part, table_faults
from spark_jobs.table_mask import SALT_VARIABLE, TableMask
from spark_jobs.tables.masked_columns import why_mask_does_not_fit
from spark_jobs.tables.matching_tables import refreshed
from spark_jobs.tables.selected_columns import (
    column_lists,
    columns_that_come,
    why_incomplete,
    why_not_selectable,
    why_not_withheld,
)
from spark_jobs.tables.stopped_tables import tables_named_twice

AREA = "tables"
_SAFE_SALT_BYTES = 16


def publication_and_table_checks(connection: Connection, pipeline: Pipeline, role: RolePrivileges) -> Iterator[Check]:
    """The publication first, if the plugin has one. Then one line per table that is ok, and one line per fault of the
    others."""
    published = pipeline.source.has_publications
    publication = find_publications(connection, pipeline.source.publications) if published else None
    pipeline = refreshed(connection, pipeline)
    names = _wanted(pipeline, publication)
    relations = pipeline.relations(names)
    privileges = {table.name: table for table in table_privileges(connection, relations)}
    sent = published_tables(connection, pipeline.source.publications, relations) if publication is not None else {}
    if published:
        owned = tuple(privileges.values())
        if publication is None:
            yield _publication_to_be_made(connection, pipeline, role, owned)
        else:
            yield _publication_check(pipeline, publication)
    facts = {fact.name: fact for fact in relation_facts(connection, names=relations, keys=pipeline.declared_keys)}
    source_tables = tables_there(connection, relations)
    for name in relations:
        if name not in privileges or name not in facts or name not in source_tables:
            yield fail(AREA, str(name), "there is no such table", "correct tables: in the configuration")
            continue
        selection, mask = pipeline.column_selections.get(name), pipeline.masks.get(name)
        table = _Table(source_tables[name], facts[name], privileges[name], sent.get(name), selection, mask)
        faults = (
            *_faults(table, role, publication),
            *(_selection_faults(connection, table, publication) or _unusable(table, pipeline)),
            *_mask_faults(table),
        )
        yield from faults or [ok(AREA, str(name), _in_order(table))]
        yield from _unseen(table, publication)
    for twice in tables_named_twice(connection, pipeline, names):
        error = named_twice(pipeline.table(twice))
        yield fail(AREA, str(twice), error.what, error.hint)
    yield from _unmatched(pipeline, relations)
    yield from _salt_check(pipeline)


@dataclass(frozen=True)
class _Table:
    """``sent``: what the publications send of it now; None if that is nothing, or if there are none."""

    there: TableThere
    facts: RelationFacts
    privileges: TablePrivileges
    sent: PublishedTable | None
    selection: ColumnSelection | None
    mask: TableMask | None

    @property
    def columns(self) -> tuple[str, ...]:
        """Those that are sent, once our publication is in step."""
        return columns_that_come(self.facts, self.sent, self.selection)


def _in_order(table: _Table) -> str:
    """Its key, and which columns and rows are sent."""
    parts = [_rows_found_by(table.facts)]
    if len(table.columns) < len([column for column in table.facts.columns if not column.attgenerated]):
        parts.append(f"columns ({', '.join(table.columns)})")
    if table.sent is not None and table.sent.row_filter:
        parts.append(f"rows where {table.sent.row_filter}")
    if table.mask is not None:
        parts.append(f"masked ({', '.join(table.mask.columns)})")
    return "; ".join(parts)


def _rows_found_by(facts: RelationFacts) -> str:
    if facts.key:
        index = ", the replica identity" if facts.relreplident == "i" else ""
        return f"key ({', '.join(facts.key)}){index}"
    return "no key: rows are matched by all columns" if facts.sends_whole_rows else "no key: only inserts can be sent"


def _unseen(table: _Table, publication: Publication | None) -> Iterator[Check]:
    if publication is not None and table.sent is not None and table.sent.missing_operations:
        every = publish_all(table.sent.publication)
        remedy = f"the lake shows them with the table's next snapshot; for all of them: {every}"
        yield warn(AREA, str(table.facts.name), unseen_operations(table.sent.missing_operations), remedy)


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
    return ok(AREA, what, f"{len(publication.tables)} tables{left_out}; {whose}")


def _publication_to_be_made(
    connection: Connection, pipeline: Pipeline, role: RolePrivileges, tables: Sequence[TablePrivileges]
) -> Check:
    what = f"publication {', '.join(pipeline.source.publications)}"
    if len(pipeline.source.publications) > 1:
        return fail(
            AREA, what, "not all of them exist", "create them as you want them: publications in a list are your own"
        )
    if pipeline.tables is None or not pipeline.alters_publication:
        remedy = "list tables: in the configuration, or CREATE PUBLICATION as you want it"
        return fail(AREA, what, "does not exist, and the configuration names no tables", remedy)
    names = pipeline.relations(table.name for table in pipeline.tables)
    lists = column_lists(connection, pipeline, names)
    by_owner = f"have an owner create it: {create_publication(pipeline.source.publications[0], names, lists)}"
    foreign = [str(table.name) for table in tables if not (table.owns or role.superuser)]
    if foreign:
        return fail(AREA, what, f"does not exist, and {role.name} does not own {', '.join(foreign)}", by_owner)
    if not role.may_create_in_database:
        database = quoted_identifier(connection.info.dbname)
        remedy = f"GRANT CREATE ON DATABASE {database} TO {quoted_identifier(role.name)}, or {by_owner}"
        return fail(AREA, what, f"does not exist, and {role.name} may not create in this database", remedy)
    return ok(AREA, what, "does not exist yet: sync creates it")


def _faults(of: _Table, role: RolePrivileges, publication: Publication | None) -> Iterator[Check]:
    table, name, grantee = of.privileges, str(of.facts.name), quoted_identifier(role.name)
    if of.there.fault:
        yield _check(name, of.there.fault)
    if not table.may_use_schema:
        remedy = f"GRANT USAGE ON SCHEMA {quoted_identifier(table.name.nspname)} TO {grantee}"
        yield fail(AREA, name, f"no USAGE on schema {table.name.nspname}", remedy)
    if not table.may_select:
        yield _no_select(table, grantee)
    if table.row_security:
        remedy = f"a snapshot must see every row: ALTER ROLE {grantee} BYPASSRLS"
        yield fail(AREA, name, "row security hides rows from the role", remedy)
    yield from _publication_faults(of, role, publication)


def _no_select(table: TablePrivileges, grantee: str) -> Check:
    grant, to = "GRANT SELECT ON ", f" TO {grantee}"
    if table.is_partitioned:
        remedy = for_each_part(table.name, grant, to)
        return fail(AREA, str(table.name), "no SELECT on it or on one of its partitions", remedy)
    return fail(AREA, str(table.name), "no SELECT", f"{grant}{table.name}{to}")


def _selection_faults(connection: Connection, of: _Table, publication: Publication | None) -> list[Check]:
    """What is wrong with ``columns:``. A publication of ours is not checked, as sync brings it in step."""
    if of.selection is None:
        return []
    errors = [why_not_selectable(of.facts, of.selection, connection.info.server_version)]
    if errors == [None] and of.sent is not None and publication is not None and not publication.ours:
        incomplete = why_incomplete(of.selection, of.facts.name, of.sent.columns)
        errors = [incomplete, why_not_withheld(of.selection, of.facts, of.sent)]
    return [fail(AREA, str(of.facts.name), error.what, error.hint) for error in errors if error is not None]


def _mask_faults(of: _Table) -> list[Check]:
    error = why_mask_does_not_fit(of.facts, of.mask) if of.mask is not None else None
    return [fail(AREA, str(of.facts.name), error.what, error.hint)] if error is not None else []


def _salt_check(pipeline: Pipeline) -> Iterator[Check]:
    """The salt's length. It is set, or there would be no pipeline to check."""
    salts = {mask.salt for mask in pipeline.masks.values()}
    for salt in salts:
        if len(salt) < _SAFE_SALT_BYTES:
            weakness = f"{SALT_VARIABLE} has {len(salt)} bytes: whoever guesses it can find masked values by trial"
            yield warn(AREA, "mask", weakness, "set a longer one; the next sync then reads the masked tables again")
        else:
            yield ok(AREA, "mask", f"{SALT_VARIABLE} is set")


def _unusable(table: _Table, pipeline: Pipeline) -> Iterator[Check]:
    for in_lake in pipeline.tables_of(table.facts.name):
        faults = table_faults(
            table.facts,
            binary=pipeline.source.binary,
            sent=table.columns,
            published=table.sent is not None,
            form=in_lake.form,
            key=in_lake.key,
            options=in_lake.options,
        )
        yield from (_check(str(in_lake.name), fault) for fault in faults)


def _check(name: str, fault: TableFault) -> Check:
    """Under the name of the table that is followed; the fault may be a partition's."""
    what = fault.what if fault.table == name else f"{fault.table} {fault.what}"
    return fail(AREA, name, what, fault.remedy)


def _publication_faults(of: _Table, role: RolePrivileges, publication: Publication | None) -> Iterator[Check]:
    table, name = of.privileges, str(of.facts.name)
    if publication is None:
        return
    if not publication.publishes(table.name):
        remedy = how_to_add(publication, table.name)
        if not publication.ours:
            yield fail(AREA, name, f"not sent by publication {publication.name}, which is your own", remedy)
        elif not (table.owns or role.superuser):
            yield fail(
                AREA, name, f"not in the publication, and {role.name} does not own it", f"by its owner: {remedy}"
            )
    elif of.sent is not None and of.sent.error is not None:
        yield fail(AREA, name, of.sent.error.what, of.sent.error.hint)
