"""What follows when tables cannot be applied to as they are: some of their partitions are read again, they are rebuilt
in another mode, or they get a new snapshot; in this order, each only where the one before does not help."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from spark_jobs.apply.apply import CatchUpReport, apply
from spark_jobs.apply.table_applied import TableApplied
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import CdcError, NeedsSnapshotError, OtherModeError
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.repair.new_generations import NewGenerations, begin_generations
from spark_jobs.repair.read_partitions import PartitionsReport, read_partitions
from spark_jobs.run import Run
from spark_jobs.snapshot.exporter import Exporter
from spark_jobs.snapshot.snapshot_budget import next_snapshot_at
from spark_jobs.snapshot.snapshot_tables import TableSnapshot

_FAILED = "it could not be read again"


@dataclass(frozen=True)
class Repaired:
    """``partly``: the tables of which only partitions were read. ``begun``: the generations of the others."""

    partly: PartitionsReport
    begun: NewGenerations


def repair(
    run: Run,
    outcomes: Sequence[TableApplied],
    exporter: Exporter,
    *,
    waiting: Mapping[QualifiedName, str] | None = None,
) -> Repaired:
    """``outcomes``: results of applying, of which those without an error are ignored. ``waiting``: tables whose
    snapshot was waiting for an open transaction before, each with its reason; they are begun last."""
    partly = read_partitions(run, outcomes, exporter)
    since = tuple(partly.outcome(outcome) for outcome in outcomes)
    again = {**tables_to_read_again(run.pipeline, since), **(waiting or {})}
    return Repaired(partly, _begun(run, exporter, again))


def _begun(run: Run, exporter: Exporter, again: Mapping[QualifiedName, str]) -> NewGenerations:
    """Each with the reason for a snapshot. An error that prevents all of them is the error of these tables alone."""
    try:
        return begin_generations(run, again, exporter)
    except CdcError as error:
        failed = {
            name: type(error)(f"{why or f'{name} is in another mode'}; {_FAILED}: {error.what}", hint=error.hint)
            for name, why in again.items()
        }
    return NewGenerations(snapshots=tuple(TableSnapshot(name, Lsn(0), error=why) for name, why in failed.items()))


def apply_and_repair(
    run: Run,
    names: Sequence[QualifiedName],
    *,
    exporter: Exporter,
    excluding: Collection[QualifiedName] = (),
    waiting: Mapping[QualifiedName, str] | None = None,
    upto: Lsn | None = None,
) -> tuple[CatchUpReport, NewGenerations]:
    """``apply``, then ``repair`` what needs it, and bring the new generations to the same window.

    Returns the outcome of all tables, and the generations that were begun.
    """
    without, uncaptured = {*excluding, *(waiting or {})}, None if waiting else 0
    report = apply(run, names, excluding=without, upto=upto, uncaptured=uncaptured)
    repaired = repair(run, report.tables, exporter, waiting=waiting)
    outcomes = {done.name: repaired.partly.outcome(done) for done in report.tables}
    begun = repaired.begun
    if not begun.names:
        waits = tuple(replace(done, error=told_to_wait(done)) for done in outcomes.values())
        return replace(report, tables=waits), begun
    read = [name for name in begun.names if name not in begun.errors]
    since = apply(run, read, upto=upto) if read else None
    outcomes |= {done.name: done for done in (since.tables if since else ())}
    outcomes |= {n: replace(outcomes[n], error=error) for n, error in begun.errors.items() if n in outcomes}
    return replace(report, tables=tuple(outcomes.values()), cut=since.cut if since else report.cut), begun


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
