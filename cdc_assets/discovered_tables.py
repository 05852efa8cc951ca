"""The tables of a component that does not name them all: queried once, and kept as Dagster's definitions state.

Definitions load often and everywhere, and must not wait for a database. So ``dg utils refresh-defs-state`` queries the
source (``dagster dev`` and ``dg`` run it automatically), and a load reads the stored answer.
https://docs.dagster.io/guides/build/components/state-backed-components
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from spark_jobs.configuration import Pipeline
from spark_jobs.errors import ConfigurationError


def discover_tables(pipeline: Pipeline, state: Path) -> None:
    """Query the source and write the tables' names, as in SQL, and the comments on them to ``state``.

    Raises SourceError, and PreconditionError if there is no publication, or no table.
    """
    from spark_jobs.postgres.connection import connected
    from spark_jobs.postgres.described_tables import described_tables
    from spark_jobs.tables.at_source import all_followed_names, resolved
    from spark_jobs.tables.followed_tables import nothing_followed

    pipeline = resolved(pipeline)
    names = pipeline.relations(all_followed_names(pipeline))
    if not names:
        raise nothing_followed(pipeline)
    with connected(pipeline.source.dsn) as connection:
        tables = described_tables(connection, names)
    shown = {str(name): tables[name].comment if name in tables else "" for name in names}
    state.write_text(json.dumps(shown), encoding="utf-8")


def discovered_tables(name: str, state: Path | None) -> Mapping[str, str]:
    """The comment on each table, as ``discover_tables`` wrote them for the pipeline ``name``. Raises ConfigurationError
    if it was not run."""
    if state is None:
        raise ConfigurationError(
            f"pipeline {name}: tables is missing, or has patterns, and the source was not asked yet for its tables",
            hint="run `dg utils refresh-defs-state`, or list the tables",
        )
    tables: dict[str, str] | list[str] = json.loads(state.read_text(encoding="utf-8"))
    return tables if isinstance(tables, dict) else dict.fromkeys(tables, "")  # an older version wrote names alone
