"""What a connection string says, without connecting. The database is part of the asset keys of source tables."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from pydantic import SecretStr


def database_name(dsn: SecretStr) -> str:
    """The database that a connection string names, by libpq's rules, without connecting.

    Raises ConfigurationError if it is not a connection string; the text itself is never shown.
    """
    given = _given(dsn)
    # libpq: PGDATABASE, then the user's name
    candidates = (given.get("dbname"), os.environ.get("PGDATABASE"), given.get("user"), os.environ.get("PGUSER"))
    return next((str(name) for name in candidates if name), "postgres")


def pipeline_name(text: str) -> str:
    """A name of a pipeline, so of a slot, as near to ``text`` as can be."""
    return re.sub(r"[^a-z0-9_]", "_", text.lower())[:63] or "_"


def server_name(dsn: SecretStr) -> tuple[str, ...]:
    """Hosts and ports as the connection string names them; one server may have several such names."""
    given = _given(dsn)
    return tuple(str(given.get(part) or "") for part in ("service", "host", "hostaddr", "port"))


def has_password(dsn: SecretStr) -> bool:
    """Whether the connection string itself has one. Raises ConfigurationError if it is not a connection string."""
    return bool(_given(dsn).get("password"))


def _given(dsn: SecretStr) -> Mapping[str, object]:
    from spark_jobs.postgres.connection import parameters_of

    return parameters_of(dsn)
