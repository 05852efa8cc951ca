"""The database that a connection string names; it is part of the asset keys of source tables."""

from __future__ import annotations

import os

from pydantic import SecretStr

from spark_jobs.errors import ConfigurationError


def database_name(dsn: SecretStr) -> str:
    """The database that a connection string names, by libpq's rules, without connecting.

    Raises ConfigurationError if it is not a connection string; the text itself is never shown.
    """
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        given = conninfo_to_dict(dsn.get_secret_value())
    except ProgrammingError:
        raise ConfigurationError(
            "source.dsn is not a PostgreSQL connection string",
            hint="expected postgresql://user:password@host:port/database or host=... dbname=...",
        ) from None
    # libpq: PGDATABASE, then the user's name
    candidates = (given.get("dbname"), os.environ.get("PGDATABASE"), given.get("user"), os.environ.get("PGUSER"))
    return next((str(name) for name in candidates if name), "postgres")
