"""The source tables as external assets: where lineage begins."""

from __future__ import annotations

import os
import re

import dagster as dg

from spark_jobs.configuration import Source
from spark_jobs.errors import ConfigurationError
from spark_jobs.qualified_name import QualifiedName


def database_name(source: Source) -> str:
    """The database that the connection string names, by libpq's rules, without connecting.

    Raises ConfigurationError when it is no connection string; the text itself is never shown.
    """
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        given = conninfo_to_dict(source.dsn.get_secret_value())
    except ProgrammingError:
        raise ConfigurationError(
            "source.dsn is not a PostgreSQL connection string",
            hint="expected postgresql://user:password@host:port/database or host=... dbname=...",
        ) from None
    # libpq: PGDATABASE, then the user's name
    candidates = (given.get("dbname"), os.environ.get("PGDATABASE"), given.get("user"), os.environ.get("PGUSER"))
    return next((str(name) for name in candidates if name), "postgres")


def key_part(name: str) -> str:
    """A name in an asset key: Dagster makes step names of keys, so all but letters, digits and ``_`` become ``_``."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)


def source_key(database: str, table: QualifiedName) -> dg.AssetKey:
    return dg.AssetKey(["postgres", *map(key_part, (database, table.nspname, table.relname))])


def source_spec(database: str, table: QualifiedName) -> dg.AssetSpec:
    """The external asset of one source table."""
    return dg.AssetSpec(
        key=source_key(database, table),
        description=f"PostgreSQL table {table} of database {database}.",
        kinds={"postgres", "table"},
        group_name=f"postgres_{key_part(database)}",
        metadata={
            "dagster/table_name": f"{database}.{table.nspname}.{table.relname}",
            "dagster/storage_kind": "postgres",
        },
    )
