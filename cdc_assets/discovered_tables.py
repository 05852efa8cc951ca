"""The tables of the publication, for a component that lists none: asked once, kept as Dagster's definitions state.

Definitions load often and everywhere; they must not wait for a database. So the source is asked by ``dg utils
refresh-defs-state`` (``dagster dev`` and ``dg`` do it by themselves), and a load reads what it said then.
https://docs.dagster.io/guides/build/components/state-backed-components
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from spark_jobs.configuration import Pipeline
from spark_jobs.errors import ConfigurationError


def discover_tables(pipeline: Pipeline, state: Path) -> None:
    """Ask the source and write the names as in SQL to ``state``. Raises SourceError, and PreconditionError where there
    is no publication, or none with a table in it."""
    from spark_jobs.errors import PreconditionError
    from spark_jobs.tables.followed_tables import all_followed_names

    names = all_followed_names(pipeline)
    if not names:
        raise PreconditionError(
            f"publication {', '.join(pipeline.source.publications)} has no tables",
            hint="ALTER PUBLICATION ... ADD TABLE, or list tables: in the configuration",
        )
    state.write_text(json.dumps([str(name) for name in names]), encoding="utf-8")


def discovered_tables(name: str, state: Path | None) -> Sequence[str]:
    """What ``discover_tables`` wrote for the pipeline ``name``. Raises ConfigurationError: it was not run."""
    if state is None:
        raise ConfigurationError(
            f"pipeline {name}: tables is missing, and the source was not asked yet which tables it publishes",
            hint="run `dg utils refresh-defs-state`, or list the tables",
        )
    names: list[str] = json.loads(state.read_text(encoding="utf-8"))
    return names
