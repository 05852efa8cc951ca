"""A range of windows again: what a table lacks of them is applied in order, what it has is recognised."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from spark_jobs.apply.apply import apply
from spark_jobs.apply.table_applied import TableApplied
from spark_jobs.change_log.window_marker import SlotIdentity, WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import ConfigurationError
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.progress import Progress, silent
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.replay.landed_windows import LandedWindows
from spark_jobs.replay.table_replayed import ReplayReport, TableReplayed
from spark_jobs.spark.provider import SparkProvider
from spark_jobs.tables.followed_tables import all_followed_names
from spark_jobs.tables.progress import progress_of


def replay(
    spark: SparkProvider,
    pipeline: Pipeline,
    lo: Lsn,
    hi: Lsn,
    names: Sequence[QualifiedName] | None = None,
    *,
    run_id: str = "",
    progress: Progress = silent,
) -> ReplayReport:
    """Bring ``names`` (all followed tables) through the windows that cover [lo, hi), each from its own watermark.

    Windows before the range that a table lacks are applied first: changes have one order. A table that is past the
    range is left as it is. Raises LakeError: no change log; GapError: it does not hold the range; ConfigurationError:
    no range, or a table that is not followed.
    """
    landed = LandedWindows.of(pipeline)
    windows = landed.between(lo, hi)
    tables = followed_tables(pipeline, names)
    before = _reached(pipeline, tables, landed.identity)
    upto = windows[-1].window.hi
    report = apply(spark, pipeline, names and tables, upto=upto, run_id=run_id, progress=progress)
    since = _reached(pipeline, tables, landed.identity)
    done = tuple(
        _replayed(table, windows, before.get(table.name), since.get(table.name))
        for table in report.tables
        if table.name in tables
    )
    return ReplayReport.of(windows, done, report.errors)


def followed_tables(pipeline: Pipeline, names: Sequence[QualifiedName] | None) -> tuple[QualifiedName, ...]:
    """``names``, or all. Raises ConfigurationError for one that is not followed."""
    followed = all_followed_names(pipeline)
    require_followed(names or (), followed)
    return followed if names is None else tuple(names)


def require_followed(names: Collection[QualifiedName], followed: Collection[QualifiedName]) -> None:
    """Raises ConfigurationError."""
    unknown = [str(name) for name in names if name not in followed]
    if unknown:
        raise ConfigurationError(
            f"not followed by this pipeline: {', '.join(unknown)}",
            hint=f"it follows {', '.join(map(str, followed))}",
        )


def _reached(pipeline: Pipeline, names: Sequence[QualifiedName], identity: SlotIdentity) -> Mapping[QualifiedName, int]:
    """The ordinal of the last window that each shows; ``apply`` reports what cannot be read."""
    return {name: state.ordinal for name, state in progress_of(pipeline.lake, names, identity).states.items()}


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
