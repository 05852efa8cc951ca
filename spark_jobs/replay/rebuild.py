"""Rebuild a table from its version before a range of windows, up to its current watermark.

It is built aside and replaces the old rows in one numbered commit: readers see either the old rows or the new ones, a
crash before the commit leaves the table as it was, and of two writers that have read the same state one commits.
Delta's RESTORE is not used: its commit carries no transaction identifier, so a late writer would go on from rows that
no longer exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from spark_jobs.apply.staging import staging_folder
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import CdcError, LakeError, new_snapshot
from spark_jobs.lake.latest_cut import show_in_latest_cut
from spark_jobs.lake.table_state import TableState
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.progress import Step
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.replay.aside import Build
from spark_jobs.replay.landed_windows import LandedWindows
from spark_jobs.replay.replay import ReplayReport, TableReplayed, followed_tables
from spark_jobs.retries import again_when_overtaken
from spark_jobs.run import Run
from spark_jobs.tables.at_source import resolved
from spark_jobs.tables.ledger import Ledger
from spark_jobs.writers.with_spark.delta_table import column_numbers, table_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rebuild(run: Run, lo: Lsn, hi: Lsn, names: Sequence[QualifiedName] | None = None) -> ReplayReport:
    """Rebuild ``names`` (default: all followed tables) from before the windows that cover [lo, hi), each up to its
    current watermark.

    A table is never rebuilt from before its snapshot: then the range begins after that. A table that fails is reported
    and is left as it was; the others are rebuilt. Raises as ``replay`` does.
    """
    pipeline = resolved(run.pipeline)
    landed = LandedWindows.of(pipeline)
    windows = landed.between(lo, hi)
    tables = followed_tables(pipeline, names)
    done: list[TableReplayed] = []
    with run.of(pipeline).guarded() as run:
        for name in tables:
            try:
                done.append(_locked_and_rebuilt(run, windows, name))
            except CdcError as error:
                done.append(TableReplayed(name, "stopped", error=error))
            run.progress(Step("rebuild", f"{name}: {done[-1].outcome}", len(done), len(tables), "tables"))
        rebuilt = [table.name for table in done if table.outcome == "rebuilt"]
        with run.guard.cuts():
            show_in_latest_cut(pipeline.lake, landed.identity, rebuilt)
    errors = tuple(table.error for table in done if table.error is not None)
    return ReplayReport.of(windows, tuple(done), errors)


@again_when_overtaken
def _locked_and_rebuilt(run: Run, windows: Sequence[WindowMarker], name: QualifiedName) -> TableReplayed:
    with run.guard.table(name):
        return _rebuilt(run, windows, name)


def _rebuilt(run: Run, windows: Sequence[WindowMarker], name: QualifiedName) -> TableReplayed:
    """Raises CdcError, including OvertakenError; then nothing is changed."""
    pipeline, landed = run.pipeline, LandedWindows.of(run.pipeline)
    state = _state(pipeline, name)
    # the log does not lead to the snapshot, only on from it
    first = max(windows[0].ordinal, landed.last_until(state.snapshot_lsn) + 1)
    if first > windows[-1].ordinal:
        return TableReplayed(name, "in its snapshot")
    if state.ordinal < first:
        return TableReplayed(name, "not applied yet")
    base = _state_before(landed, state, first)
    had = sum(marker.ordinal <= state.ordinal for marker in windows)
    if base.commits == state.commits:  # these windows did not change the table
        return TableReplayed(name, "nothing to apply", had)
    build = Build(run, landed, base, landed.after(base.ordinal, state.ordinal))
    build.check()
    build = replace(build, columns=column_numbers(run.spark(), pipeline.lake.table(name)))
    with staging_folder(pipeline.lake, state) as folder:
        built = build.in_folder(folder)

        def write(own: SparkSession) -> None:
            table_at(own, built.path).write.format("delta").mode("overwrite").save(pipeline.lake.table(name))

        recorded = replace(build.provenance(state), changes=built.changes)
        version, rows = build.put_in_place(state, recorded, write, failed="was not rebuilt")
    return TableReplayed(
        name,
        "rebuilt",
        already_applied=had,
        rebuilt_from=base.version,
        changes=built.changes,
        rows_written=rows,
        delta_version=version,
    )


def _state(pipeline: Pipeline, name: QualifiedName) -> TableState:
    """The table's state, by its own commits and the latest cut. Raises LakeError if it is unknown."""
    state = Ledger.required(pipeline.lake).state_of(name)
    if state is None or state.is_lost:
        lost = ": Delta's log no longer says how far the table is"
        what = " has no snapshot yet" if state is None else lost
        raise LakeError(f"{name}{what}", hint=new_snapshot(name))
    return state


def _state_before(landed: LandedWindows, state: TableState, first: int) -> TableState:
    """The newest past state before window ``first``, of the same snapshot and mode. Raises LakeError if there is
    none."""
    for past in landed.past_states(state.name):
        if past.state.generation != state.generation:
            break
        if past.state.ordinal < first:
            return past.state
    raise LakeError(
        f"{state.name}: Delta's log has no version in mode {state.generation.form} from before window {first}",
        hint=f"choose a later range, or {new_snapshot(state.name)}",
    )
