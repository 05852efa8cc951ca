"""Which tables get a new snapshot without a command, and which have to wait for one."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from spark_jobs.apply.table_applied import TableApplied
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import CdcError, NeedsSnapshotError, OtherModeError
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.snapshot.pace import next_snapshot_at


def tables_to_read_again(pipeline: Pipeline, outcomes: Iterable[TableApplied]) -> dict[QualifiedName, str]:
    """The tables that need a new generation, each with the reason for a snapshot; the reason is empty for a table that
    is only in another mode. Empty if ``on_rewrite`` is ``error``; without the tables whose latest snapshots
    took too much time."""
    if pipeline.on_rewrite == "error":
        return {}
    return {
        outcome.name: "" if isinstance(outcome.error, OtherModeError) else outcome.error.what
        for outcome in outcomes
        if isinstance(outcome.error, NeedsSnapshotError) and _next(outcome) is None
    }


def _next(outcome: TableApplied) -> datetime | None:
    return next_snapshot_at(outcome.state.cause if outcome.state else None)


def told_to_wait(outcome: TableApplied) -> CdcError | None:
    """The outcome's error; if the table has to wait for its snapshot, the error says why, and until when."""
    due = _next(outcome)
    if due is None or not isinstance(outcome.error, NeedsSnapshotError):
        return outcome.error
    cause = outcome.state.cause if outcome.state else None
    took = timedelta(seconds=round(cause.seconds or 0.0)) if cause else timedelta()
    return type(outcome.error)(
        f"{outcome.error.what}; it keeps changing: its last snapshot took {took}, and there is no other"
        f" before {due:%Y-%m-%d %H:%M} UTC",
        hint=outcome.error.hint,
    )
