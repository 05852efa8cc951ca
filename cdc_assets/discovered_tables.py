"""The publication's tables, for a component that lists none: queried once, and kept as Dagster's definitions state.

Definitions load often and everywhere, and must not wait for a database. So ``dg utils refresh-defs-state`` queries the
source (``dagster dev`` and ``dg`` run it automatically), and a load reads the stored answer.
https://docs.dagster.io/guides/build/components/state-backed-components
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from spark_jobs.configuration import Pipeline
from spark_jobs.errors import ConfigurationError


def discover_tables(pipeline: Pipeline, state: Path) -> None:
    """Query the source and write the tables' names, as in SQL, to ``state``. Raises SourceError, and PreconditionError
    if there is no publication, or if it has no table."""
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
    """What ``discover_tables`` wrote for the pipeline ``name``. Raises ConfigurationError if it was not run."""
    if state is None:
        raise ConfigurationError(
            f"pipeline {name}: tables is missing, and the source was not asked yet which tables it publishes",
            hint="run `dg utils refresh-defs-state`, or list the tables",
        )
    names: list[str] = json.loads(state.read_text(encoding="utf-8"))
    return names
