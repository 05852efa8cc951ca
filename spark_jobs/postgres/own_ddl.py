"""Runs our own DDL. It fires the database's event triggers, whose functions were written for other sessions.

https://www.postgresql.org/docs/current/event-triggers.html
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from spark_jobs.postgres.connection import Connection, source_errors

# the search_path that a session of this role begins with, unless the server's configuration file sets another one
_USUAL_PATH = """
SELECT pg_catalog.set_config('search_path', coalesce((
  SELECT substring(setting FROM '=(.*)') FROM pg_catalog.pg_db_role_setting s, unnest(s.setconfig) AS setting
  WHERE setting LIKE 'search_path=%'
    AND s.setrole IN (0, (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = session_user))
    AND s.setdatabase IN (0, (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()))
  ORDER BY s.setrole = 0, s.setdatabase = 0 LIMIT 1
), '"$user", public'), true)
"""


@contextmanager
def own_ddl(connection: Connection, what: str, *, lock_timeout: str = "") -> Iterator[None]:
    """A transaction for our statements, which name everything with its schema: it has the search_path of the role's
    other sessions, not our empty one. Raises the driver's errors as ours; ``what`` says what failed. ``lock_timeout``:
    another one than the session's."""
    with source_errors(what), connection.transaction():
        connection.execute(_USUAL_PATH)
        if lock_timeout:
            connection.execute("SELECT pg_catalog.set_config('lock_timeout', %s, true)", [lock_timeout])
        yield
