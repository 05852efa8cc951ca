"""The publication: either our own, created for the configured tables and kept in step with them, or the user's, which
is never altered.

https://www.postgresql.org/docs/current/sql-createpublication.html
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import psycopg
from psycopg import sql

from spark_jobs.errors import PreconditionError, SourceError
from spark_jobs.postgres.connection import Connection, source_errors
from spark_jobs.postgres.own_ddl import own_ddl
from spark_jobs.postgres.partition_tree import partition_tree_sql
from spark_jobs.postgres.publication_comment import PublicationComment, write_comment
from spark_jobs.postgres.publication_members import excluded_sql, members_sql
from spark_jobs.postgres.published_tables import ColumnLists, PublishedTable, add_table, published_tables
from spark_jobs.postgres.source_tables import require_tables
from spark_jobs.qualified_name import QualifiedName, quoted_identifier
from spark_jobs.schema.relation_facts import FIRST_NORMAL_OID

NO_LISTS: ColumnLists = MappingProxyType({})
# how long a table that joins our publication is waited for: the others wait, too, and it joins with the next sync
_JOINING = "10s"


@dataclass(frozen=True)
class Publication:
    """``tables``: those whose changes are sent; of partitioned ones the root or the leaves, by ``via_partition_root``.

    ``comment``: ours, if we created it; otherwise None. ``excluded``: FOR ALL TABLES EXCEPT these, and with them the
    ``excluded_partitions``. ``by_leaves``: partitioned tables that are sent by their leaves, each with the publication
    it belongs to. ``all_sequences``: FOR ALL SEQUENCES, which logical decoding does not read. What it sends of each
    table: see ``published_tables``.
    """

    names: tuple[str, ...]
    comment: PublicationComment | None
    via_partition_root: bool
    tables: tuple[QualifiedName, ...]
    excluded: tuple[QualifiedName, ...] = ()
    excluded_partitions: tuple[QualifiedName, ...] = ()
    all_sequences: bool = False
    by_leaves: tuple[tuple[QualifiedName, str], ...] = ()

    @property
    def name(self) -> str:
        """For messages."""
        return ", ".join(self.names)

    @property
    def ours(self) -> bool:
        return self.comment is not None

    def publishes(self, table: QualifiedName) -> bool:
        return table in self._tables

    @cached_property
    def _tables(self) -> frozenset[QualifiedName]:
        return frozenset(self.tables)


# the content of pg_publication_tables. Of what is materialized the planner knows no number of rows: it would compare
# each candidate with each entry
_PUBLICATION = """
WITH RECURSIVE pub AS (
  SELECT * FROM pg_catalog.pg_publication WHERE pubname = %(name)s
), candidate AS NOT MATERIALIZED (
  SELECT oid AS relid, relnamespace, relkind FROM pg_catalog.pg_class
  WHERE relkind IN ('r', 'p') AND relpersistence = 'p' AND oid >= {first_normal_oid}
), member AS ({members}
), entry (relid) AS (
  SELECT relid FROM member JOIN candidate c USING (relid), pub
  WHERE pub.pubviaroot OR NOT pub.puballtables OR c.relkind = 'r'
), {tree}, below (relid) AS (
  SELECT DISTINCT member FROM tree
)
SELECT obj_description(pub.oid, 'pg_publication'), pub.pubviaroot,
  coalesce((to_jsonb(pub)->>'puballsequences')::boolean, false), (
    SELECT coalesce(jsonb_agg(jsonb_build_array(n.nspname, c.relname, c.relispartition)), '[]')
    FROM pg_catalog.pg_publication_rel r, LATERAL (
      SELECT r.prrelid UNION SELECT relid FROM pg_catalog.pg_partition_tree(r.prrelid)) AS tree(relid)
    JOIN pg_catalog.pg_class c ON c.oid = tree.relid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE r.prpubid = pub.oid AND {excluded}),
  (SELECT coalesce(jsonb_agg(jsonb_build_array(n.nspname, c.relname)), '[]')
   FROM below JOIN pg_catalog.pg_class c ON c.oid = below.relid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
   WHERE CASE WHEN pub.pubviaroot
     THEN below.relid IN (SELECT relid FROM entry) AND NOT (c.relispartition AND (pub.puballtables OR EXISTS (
       SELECT FROM pg_catalog.pg_partition_ancestors(c.oid) JOIN entry USING (relid) WHERE relid <> c.oid)))
     ELSE c.relkind <> 'p' END),
  (SELECT coalesce(jsonb_agg(jsonb_build_array(n.nspname, c.relname)), '[]')
   FROM (SELECT relid FROM member UNION SELECT relid FROM below) AS belongs JOIN pg_catalog.pg_class c ON c.oid = relid
   JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE NOT pub.pubviaroot AND c.relkind = 'p')
FROM pub
"""
# lists and filters have columns in this catalogue since PostgreSQL 15
_ENTRIES = """
SELECT n.nspname, c.relname, coalesce(to_jsonb(r)->>'prattrs', to_jsonb(r)->>'prqual') IS NOT NULL
FROM pg_catalog.pg_publication p JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid
JOIN pg_catalog.pg_class c ON c.oid = r.prrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE p.pubname = %s
"""


def find_publication(connection: Connection, name: str) -> Publication | None:
    version = connection.info.server_version
    statement = sql.SQL(_PUBLICATION).format(
        members=members_sql(version),
        excluded=excluded_sql(version),
        first_normal_oid=sql.Literal(FIRST_NORMAL_OID),
        tree=sql.SQL(partition_tree_sql("(SELECT relid AS oid FROM entry) roots")),
    )
    with source_errors(f"publication {name} could not be read"):
        row = connection.execute(statement, {"name": name}).fetchone()
    if row is None:
        return None
    comment, via_root, all_sequences, excluded, tables, by_leaves = row
    return Publication(
        (name,),
        PublicationComment.parse(comment),
        via_root,
        tuple(QualifiedName(*table) for table in sorted(tables)),
        tuple(QualifiedName(*table) for *table, is_partition in sorted(excluded) if not is_partition),
        tuple(QualifiedName(*table) for *table, is_partition in sorted(excluded) if is_partition),
        all_sequences,
        tuple((QualifiedName(*table), name) for table in sorted(by_leaves)),
    )


def ensure_publications(
    connection: Connection,
    names: Sequence[str],
    tables: Sequence[QualifiedName] | None,
    lists: ColumnLists = NO_LISTS,
) -> Publication:
    """Create the publication for ``tables``, bring our own in step with them, or check the user's. Several must all be
    the user's, and are only checked, as a whole.

    With ``tables`` None, they must exist and are not altered. ``lists``: column lists of our own publication, for some
    of the tables. Raises PreconditionError when a table or a publication is missing, or the role lacks a privilege;
    nothing has been changed then. Raises it too when one of the tables is not published.
    """
    publication = find_publications(connection, names)
    if tables is not None and not (publication and all(map(publication.publishes, tables))):
        require_tables(connection, tables)
    if publication is None and len(names) > 1:
        missing = [name for name in names if find_publication(connection, name) is None]
        raise PreconditionError(
            f"there is no publication {', '.join(missing)}",
            hint="create them as you want them: publications in a list are your own",
        )
    if publication is None:
        if tables is None:
            raise no_publication(names)
        with _naming_locked(connection, names[0], tables):
            _create(connection, names[0], tables, lists)
    elif publication.ours and tables is not None and (steps := _steps(connection, publication, tables, lists)):
        joining = [table for table in tables if not publication.publishes(table)]
        only_joins = joining and len(steps) == 1  # for an entry that leaves or changes, all have to wait
        with _naming_locked(connection, names[0], joining):
            _alter(connection, names[0], steps, _JOINING if only_joins else "")
    else:
        _check(publication, tables)
        return publication
    altered = find_publication(connection, names[0])
    if altered is None:
        raise PreconditionError(f"publication {names[0]} was dropped while it was being created", hint="run it again")
    _check(altered, tables)
    return altered


class TablesLockedError(PreconditionError):
    """``errors``: of tables that cannot join our publication now, because another session has locked them."""

    errors: Mapping[QualifiedName, PreconditionError] = MappingProxyType({})


@contextmanager
def _naming_locked(connection: Connection, publication: str, joining: Sequence[QualifiedName]) -> Iterator[None]:
    """Raise TablesLockedError for those that are locked still, if it is a lock that was waited for in vain."""
    try:
        yield
    except SourceError as error:
        hint = "wait for the session that holds the lock, or end it, see pg_locks; the next sync adds the table"
        locked = {
            table: PreconditionError(f"{table} is locked, and cannot be added to publication {publication}", hint=hint)
            for table in joining
            if "lock timeout" in error.what and _is_locked(connection, table)
        }
        if not locked:
            raise
        names = ", ".join(map(str, locked))
        what = f"another session has locked what publication {publication} is to send: {names}"
        raised = TablesLockedError(what, hint=error.hint)
        raised.errors = locked
        raise raised from error


def _is_locked(connection: Connection, table: QualifiedName) -> bool:
    """Whether another session keeps a lock on it which joining a publication has to wait for."""
    lock = sql.SQL("LOCK TABLE ONLY {} IN SHARE UPDATE EXCLUSIVE MODE NOWAIT")
    try:
        with connection.transaction():
            connection.execute(lock.format(sql.Identifier(table.nspname, table.relname)))
    except psycopg.errors.LockNotAvailable:
        return True
    return False


def find_publications(connection: Connection, names: Sequence[str]) -> Publication | None:
    """All of them as one: what the plugin sends for them together. None if one is missing."""
    publications = [each for each in (find_publication(connection, name) for name in names) if each is not None]
    if len(publications) < len(names):
        return None
    if len(publications) == 1:
        return publications[0]
    return Publication(
        tuple(names),
        comment=None,
        via_partition_root=any(each.via_partition_root for each in publications),
        # without the partitions that one of them publishes under the name of their root
        excluded=tuple(sorted({table for each in publications for table in each.excluded})),
        excluded_partitions=tuple(sorted({table for each in publications for table in each.excluded_partitions})),
        by_leaves=tuple(pair for each in publications for pair in each.by_leaves),
        tables=tuple(
            sorted(
                published_tables(
                    connection, names, [t for each in publications for t in each.tables], for_reading=False
                )
            )
        ),
    )


def drop_publication(connection: Connection, name: str) -> None:
    """Drop our publication, if it still exists."""
    with own_ddl(connection, f"publication {name} could not be dropped"):
        connection.execute(sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(name)))


def publication_owner(connection: Connection, name: str) -> str:
    """The name of the role that owns it; empty if there is no such publication."""
    query = "SELECT pubowner::regrole::text FROM pg_catalog.pg_publication WHERE pubname = %s"
    with source_errors(f"publication {name} could not be read"):
        row = connection.execute(query, [name]).fetchone()
    return "" if row is None else str(row[0])


def _steps(
    connection: Connection, publication: Publication, tables: Sequence[QualifiedName], lists: ColumnLists
) -> list[sql.Composed]:
    """What gives our publication exactly these tables, each with its column list and no row filter.

    An entry that stays keeps its OID; with another column list it gets a new one, so its table needs a snapshot. Only
    tables whose entries change are locked: SET TABLE would lock all of them, and wait for a VACUUM of any.
    """
    with source_errors(f"publication {publication.name} could not be read"):
        rows = connection.execute(_ENTRIES, (publication.name,)).fetchall()
    entries = {QualifiedName(nspname, relname): is_narrowed for nspname, relname, is_narrowed in rows}
    listed = {*(name for name, is_narrowed in entries.items() if is_narrowed), *lists} & set(tables)
    published = published_tables(connection, [publication.name], sorted(listed), for_reading=False) if listed else {}
    others = {name for name in listed if not _is_in_step(published.get(name), lists.get(name))}
    gone = sorted((entries.keys() - set(tables)) | (others & entries.keys()))
    added = [name for name in tables if name not in entries or name in others]
    if gone or added:
        steps = [sql.SQL("DROP TABLE {}").format(_entries(gone, NO_LISTS))] if gone else []
        return [*steps, *([sql.SQL("ADD TABLE {}").format(_entries(added, lists))] if added else [])]
    # somebody else has added a schema
    is_wider = set(publication.tables) != set(tables)
    return [sql.SQL("SET TABLE {}").format(_entries(tables, lists))] if is_wider else []


def _is_in_step(published: PublishedTable | None, columns: tuple[str, ...] | None) -> bool:
    if published is None or published.row_filter:
        return False
    return published.listed == (columns is not None) and (columns is None or set(columns) == set(published.columns))


def _create(connection: Connection, name: str, tables: Sequence[QualifiedName], lists: ColumnLists) -> None:
    statement = sql.SQL("CREATE PUBLICATION {} FOR TABLE {} WITH (publish_via_partition_root = true)")
    with own_ddl(connection, f"publication {name} cannot be created", lock_timeout=_JOINING):
        connection.execute(statement.format(sql.Identifier(name), _entries(tables, lists)))
        write_comment(connection, name, PublicationComment())


def _alter(connection: Connection, name: str, steps: Sequence[sql.Composed], lock_timeout: str) -> None:
    what = f"publication {name} cannot be brought in step with the configuration"
    with own_ddl(connection, what, lock_timeout=lock_timeout):
        for step in steps:
            connection.execute(sql.SQL("ALTER PUBLICATION {} {}").format(sql.Identifier(name), step))


def _entries(tables: Sequence[QualifiedName], lists: ColumnLists) -> sql.Composed:
    return sql.SQL(", ").join(_entry(table, lists.get(table)) for table in tables)


def _entry(table: QualifiedName, columns: tuple[str, ...] | None) -> sql.Composed:
    """With ONLY, so that inheriting tables are not included. For a partitioned table it makes no difference."""
    entry = sql.SQL("ONLY {}").format(sql.Identifier(table.nspname, table.relname))
    if columns is None:
        return entry
    return sql.SQL("{} ({})").format(entry, sql.SQL(", ").join(map(sql.Identifier, columns)))


def no_publication(names: Sequence[str]) -> PreconditionError:
    """The error about publications that do not exist, although they are to name the tables."""
    what = f"there is no publication {', '.join(names)}, and the configuration names no tables"
    return PreconditionError(what, hint="list tables: in the configuration, or CREATE PUBLICATION as you want it")


def why_not_sent(publication: Publication, table: QualifiedName) -> PreconditionError | None:
    """The error about one table in a publication that we may not alter; None if it publishes the table."""
    if not publication.publishes(table):
        return PreconditionError(
            f"publication {publication.name} does not publish {table}",
            hint=how_to_add(publication, table),
        )
    return None


def how_to_add(publication: Publication, table: QualifiedName) -> str:
    """The statement that makes a publication send a table that it does not send now."""
    if table in publication.excluded:
        others = ", ".join(str(each) for each in publication.excluded if each != table)
        return (
            f"ALTER PUBLICATION {quoted_identifier(publication.names[0])} SET ALL TABLES"
            f"{f' EXCEPT (TABLE {others})' if others else ''}{', ALL SEQUENCES' if publication.all_sequences else ''}"
        )
    if table in publication.excluded_partitions:
        return "its partitioned table is excluded: ALTER PUBLICATION ... SET ALL TABLES EXCEPT (...) without that"
    name = dict(publication.by_leaves).get(table, publication.names[0])
    by_root = f"ALTER PUBLICATION {quoted_identifier(name)} SET (publish_via_partition_root = true)"
    if (table, name) in publication.by_leaves:
        return by_root
    added = f"{add_table(name)} {table}"
    return added if publication.via_partition_root else f"{added}; if it is partitioned, {by_root}"


def _check(publication: Publication, tables: Sequence[QualifiedName] | None) -> None:
    for table in sorted(tables or ()):
        if error := why_not_sent(publication, table):
            raise error
    if not publication.tables:
        raise PreconditionError(
            f"publication {publication.name} has no table", hint=f"{add_table(publication.names[0])} ..."
        )
