"""The engine: reads the slot, lands the change log and applies it to Delta tables. It knows nothing of Dagster."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_jobs.logged_changes.changes import changes

__all__ = ["changes"]


def __getattr__(name: str) -> object:
    # on first use: executors import this package, and need nothing of what reads the log
    if name == "changes":
        from spark_jobs.logged_changes.changes import changes

        return changes
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
