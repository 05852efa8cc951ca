"""The Python interface: the Dagster component, and what the command does, for other schedulers.

    with lazy_session(pipeline.spark) as spark:
        report = sync(pipeline, spark)

Each name is imported on first use: the command and every code location of the environment import this package, and
should not have to load Dagster, still less Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cdc_assets.changes_source import ChangesSource
    from cdc_assets.cli.spark import lazy_session
    from cdc_assets.component import PostgresCdcComponent
    from cdc_assets.configuration.load_pipeline import load_pipeline
    from cdc_assets.table_at import TableAt, at
    from spark_jobs.configuration import Pipeline
    from spark_jobs.errors import CdcError
    from spark_jobs.logged_changes.changes import changes
    from spark_jobs.sync import SyncReport, sync

__all__ = [
    "CdcError",
    "ChangesSource",
    "Pipeline",
    "PostgresCdcComponent",
    "SyncReport",
    "TableAt",
    "at",
    "changes",
    "lazy_session",
    "load_pipeline",
    "sync",
]

_MODULES = {
    "CdcError": "spark_jobs.errors",
    "ChangesSource": "cdc_assets.changes_source",
    "Pipeline": "spark_jobs.configuration",
    "PostgresCdcComponent": "cdc_assets.component",
    "SyncReport": "spark_jobs.sync",
    "TableAt": "cdc_assets.table_at",
    "at": "cdc_assets.table_at",
    "changes": "spark_jobs.logged_changes.changes",
    "lazy_session": "cdc_assets.cli.spark",
    "load_pipeline": "cdc_assets.configuration.load_pipeline",
    "sync": "spark_jobs.sync",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    # Dagster's registry lists a package's components by dir()
    return [*globals(), *__all__]
