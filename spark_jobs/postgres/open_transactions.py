"""The open transactions that others wait for: to create a slot, to export a snapshot, or to release old WAL.

Only a transaction that has written counts, in any database of the server: it has a transaction ID.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from psycopg import sql

from spark_jobs.errors import one_line
from spark_jobs.postgres.connection import Connection, source_errors
from spark_jobs.postgres.publication_members import SCHEMAS_AND_LISTS_SINCE
from spark_jobs.qualified_name import quoted_identifier

# every role sees pid, application_name and backend_xid of all sessions, but xact_start and state of others only with
# pg_read_all_stats
OLDEST_TRANSACTION = """
SELECT pid, gid, age, application_name, state, database FROM (
  SELECT pid, NULL AS gid, clock_timestamp() - xact_start AS age, application_name, coalesce(state, '') AS state,
         '' AS database, age(backend_xid) AS xids
  FROM pg_catalog.pg_stat_activity WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid()
  UNION ALL SELECT NULL, gid, clock_timestamp() - prepared, '', '', database, age(transaction)
  FROM pg_catalog.pg_prepared_xacts
) written ORDER BY xids DESC LIMIT 1
"""

# DDL on a publication does not wait for who writes to its tables
_WRITER_FROM_BEFORE = """
SELECT x.pid, p.gid, clock_timestamp() - coalesce(s.xact_start, p.prepared), coalesce(s.application_name, ''),
  coalesce(s.state, ''), coalesce(p.database, '')
FROM pg_catalog.pg_locks l
  JOIN pg_catalog.pg_locks x ON x.virtualtransaction = l.virtualtransaction AND x.locktype = 'transactionid'
    AND x.mode = 'ExclusiveLock' AND x.granted
  LEFT JOIN pg_catalog.pg_stat_activity s ON s.pid = x.pid
  LEFT JOIN pg_catalog.pg_prepared_xacts p ON p.transaction = x.transactionid
WHERE l.locktype = 'relation' AND l.granted AND l.mode LIKE '%%Exclusive%%' AND l.mode <> 'ShareUpdateExclusiveLock'
  AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
  AND (l.relation = %(relid)s OR l.relation IN (SELECT t.relid FROM pg_catalog.pg_partition_tree(%(relid)s) t))
  AND age(x.transactionid) > (SELECT min(age(entry.xid)) FROM (
    SELECT b.xmin FROM pg_catalog.pg_publication b WHERE b.pubname = ANY (%(publications)s)
    UNION ALL SELECT r.xmin FROM pg_catalog.pg_publication_rel r JOIN pg_catalog.pg_publication b ON b.oid = r.prpubid
    WHERE b.pubname = ANY (%(publications)s)
      AND (r.prrelid = %(relid)s OR r.prrelid IN (SELECT a FROM pg_catalog.pg_partition_ancestors(%(relid)s) a))
    {of_schemas}) AS entry(xid))
ORDER BY age(x.transactionid) DESC LIMIT 1
"""
_OF_SCHEMAS = """
    UNION ALL SELECT n.xmin FROM pg_catalog.pg_publication_namespace n
      JOIN pg_catalog.pg_publication b ON b.oid = n.pnpubid WHERE b.pubname = ANY (%(publications)s)
"""


@dataclass(frozen=True)
class OpenTransaction:
    """The oldest open transaction that has written. The ``restart_lsn`` of slots cannot move past its start, and no
    snapshot that was asked for since is exported before its end.

    It is either a session's (``pid``) or prepared (``gid``, which may be any text). ``age`` is None if this role may
    not see it; ``application_name`` and ``state`` are the session's, as far as they are known. ``database``: where it
    was prepared, and can be ended.
    """

    pid: int | None
    gid: str | None
    age: timedelta | None
    application_name: str = ""
    state: str = ""
    database: str = ""

    def __str__(self) -> str:
        session = ", ".join(filter(None, (one_line(self.application_name), self.state)))
        which = f"of server process {self.pid}" if self.gid is None else f"prepared as {one_line(self.gid)!r}"
        hidden = "age hidden from this role, which lacks pg_read_all_stats"
        age = hidden if self.age is None else f"open for {self.age.total_seconds():,.0f} s"
        return f"{which}{f' ({session})' if session else ''}, {age}"

    @property
    def way_to_end(self) -> str:
        """The SQL that ends it. A session's changes are rolled back; of a prepared one its owner decides."""
        if self.gid is None:
            return f"SELECT pg_terminate_backend({self.pid})"
        gid = sql.Literal(self.gid).as_string(None).strip()
        return f"COMMIT PREPARED {gid} or ROLLBACK PREPARED {gid}, in database {quoted_identifier(self.database)}"


def writer_from_before(connection: Connection, relid: int, publications: Sequence[str]) -> OpenTransaction | None:
    """The oldest open transaction that has written to the table, or to a partition of it, and is older than what the
    ``publications`` say of the table: what it wrote before that is not sent. Raises SourceError."""
    known = connection.info.server_version >= SCHEMAS_AND_LISTS_SINCE
    query = sql.SQL(_WRITER_FROM_BEFORE).format(of_schemas=sql.SQL(_OF_SCHEMAS if known else ""))
    with source_errors("the open transactions could not be looked up"):
        row = connection.execute(query, {"relid": relid, "publications": list(publications)}).fetchone()
    return None if row is None else OpenTransaction(*row)


def oldest_transaction(connection: Connection) -> OpenTransaction | None:
    """The oldest open transaction that has written; None if there is none. On a standby, none of the primary's shows.
    Raises SourceError."""
    with source_errors("the open transactions could not be looked up"):
        row = connection.execute(OLDEST_TRANSACTION).fetchone()
    return None if row is None else OpenTransaction(*row)
