"""Apply a range of windows again, in order. Windows that a table already has are skipped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from spark_jobs.apply.apply import apply
from spark_jobs.apply.table_applied import TableApplied
from spark_jobs.change_log.change_counts import NO_CHANGES, ChangeCounts
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import CdcError
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.replay.landed_windows import LandedWindows
from spark_jobs.run import Run
from spark_jobs.tables.at_source import all_followed_names, resolved
from spark_jobs.tables.followed_tables import require_followed
from spark_jobs.tables.ledger import Ledger

Outcome = Literal[
    "applied", "nothing to apply", "already applied", "rebuilt", "in its snapshot", "not applied yet", "stopped"
]


@dataclass(frozen=True)
class TableReplayed:
    """``already_applied``: how many of the range's windows the table had before. ``applied``: how many this call added.

    With outcome ``in its snapshot`` or ``not applied yet`` there was nothing to rebuild; with ``stopped`` there is an
    ``error``. ``rebuilt_from``: the Delta version that the table was rebuilt from. ``changes``: those in all windows
    that were applied, also before and after the range. ``delta_version`` is None if nothing was committed.
    """

    name: QualifiedName
    outcome: Outcome
    already_applied: int = 0
    applied: int = 0
    rebuilt_from: int | None = None
    changes: ChangeCounts = NO_CHANGES
    rows_written: int = 0
    delta_version: int | None = None
    error: CdcError | None = None


@dataclass(frozen=True)
class ReplayReport:
    """The windows ``first`` to ``last``, WAL [``lo``, ``hi``), that cover the range that was asked for."""

    first: int
    last: int
    lo: Lsn
    hi: Lsn
    tables: tuple[TableReplayed, ...]
    errors: tuple[CdcError, ...] = ()

    @classmethod
    def of(
        cls, windows: Sequence[WindowMarker], tables: tuple[TableReplayed, ...], errors: tuple[CdcError, ...]
    ) -> ReplayReport:
        """``windows``: those that cover the range, at least one."""
        first, last = windows[0], windows[-1]
        return cls(first.ordinal, last.ordinal, first.window.lo, last.window.hi, tables, errors)


def replay(run: Run, lo: Lsn, hi: Lsn, names: Sequence[QualifiedName] | None = None) -> ReplayReport:
    """Apply the windows that cover [lo, hi) to ``names`` (default: all followed tables), each from its own watermark.

    Windows before the range that a table lacks are applied first, as changes must be applied in order. A table that is
    past the range is not changed. Raises LakeError if there is no change log, GapError if it does not hold the range,
    ConfigurationError if the range is empty or a table is not followed.
    """
    pipeline = resolved(run.pipeline)
    landed = LandedWindows.of(pipeline)
    windows = landed.between(lo, hi)
    tables = followed_tables(pipeline, names)
    before = _reached(pipeline, tables)
    upto = windows[-1].window.hi
    report = apply(run.of(pipeline), names and tables, upto=upto)
    since = _reached(pipeline, tables)
    done = tuple(
        _replayed(table, windows, before.get(table.name), since.get(table.name))
        for table in report.tables
        if table.name in tables
    )
    return ReplayReport.of(windows, done, report.errors)


def followed_tables(pipeline: Pipeline, names: Sequence[QualifiedName] | None) -> tuple[QualifiedName, ...]:
    """``names``, or all followed tables if None. Raises ConfigurationError for a table that is not followed."""
    followed = all_followed_names(pipeline)
    require_followed(names or (), followed)
    return followed if names is None else tuple(names)


def _reached(pipeline: Pipeline, names: Sequence[QualifiedName]) -> Mapping[QualifiedName, int]:
    """The ordinal of each table's last window. Tables that cannot be read are left out: ``apply`` reports them."""
    ledger = Ledger.required(pipeline.lake).opening(names)
    return {name: state.ordinal for name, state in ledger.states.items()}


def _replayed(
    table: TableApplied, windows: Sequence[WindowMarker], before: int | None, since: int | None
) -> TableReplayed:
    already = sum(marker.ordinal <= (-1 if before is None else before) for marker in windows)
    # windows that changed nothing left no commit behind
    reached = windows[-1].ordinal if table.error is None else (-1 if since is None else since)
    through = sum(marker.ordinal <= reached for marker in windows)
    done_before = already == len(windows) and table.error is None
    return TableReplayed(
        table.name,
        "already applied" if done_before else table.outcome,
        already,
        through - already,
        changes=table.changes,
        rows_written=table.rows_written,
        delta_version=table.delta_version,
        error=table.error,
    )
