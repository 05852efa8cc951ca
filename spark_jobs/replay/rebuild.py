"""A table made again from what it was before a range of windows, to where it is.

It is built aside, on its version before the range, and takes the place of the old rows in one commit, numbered like all
of ours: readers see the old rows or the new ones, a crash before it leaves the table as it was, and of two writers that
have read one state one commits. Not by Delta's RESTORE: its commit carries no transaction identifier, so a writer who
comes late would go on from rows that are gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from spark_jobs.apply.staging import staging_folder
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import CdcError, LakeError
from spark_jobs.lake.cuts import latest_cut
from spark_jobs.lake.delta_table import rows_written
from spark_jobs.lake.table_commit import Provenance, committed_version, committing_session, overtaking
from spark_jobs.lake.table_state import TableState, table_state
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.progress import Progress, Step, silent
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.replay.aside import Build, BuiltAside
from spark_jobs.replay.landed_windows import LandedWindows
from spark_jobs.replay.latest_cut import show_in_latest_cut
from spark_jobs.replay.replay import followed_tables
from spark_jobs.replay.table_replayed import ReplayReport, TableReplayed
from spark_jobs.retries import again_when_overtaken
from spark_jobs.spark.errors import spark_errors
from spark_jobs.spark.provider import SparkProvider
from spark_jobs.tables.progress import known_state
from spark_jobs.write_guard import WriteGuard, write_guard

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rebuild(
    spark: SparkProvider,
    pipeline: Pipeline,
    lo: Lsn,
    hi: Lsn,
    names: Sequence[QualifiedName] | None = None,
    *,
    run_id: str = "",
    progress: Progress = silent,
) -> ReplayReport:
    """Make ``names`` (all followed tables) again from before the windows that cover [lo, hi), each to where it is.

    What a table's snapshot shows is not in the log: the range then begins behind it. A table that fails is reported and
    stays as it was; the others are done. Raises as ``replay`` does.
    """
    landed = LandedWindows.of(pipeline)
    windows = landed.between(lo, hi)
    tables = followed_tables(pipeline, names)
    done: list[TableReplayed] = []
    with write_guard(pipeline.source) as guard:
        for name in tables:
            try:
                done.append(_locked_and_rebuilt(spark, pipeline, guard, windows, name, run_id))
            except CdcError as error:
                done.append(TableReplayed(name, "stopped", error=error))
            progress(Step("rebuild", f"{name}: {done[-1].outcome}", len(done), len(tables), "tables"))
        with guard.cuts():
            show_in_latest_cut(pipeline, landed.identity, [table.name for table in done if table.outcome == "rebuilt"])
    errors = tuple(table.error for table in done if table.error is not None)
    return ReplayReport.of(windows, tuple(done), errors)


@again_when_overtaken
def _locked_and_rebuilt(
    spark: SparkProvider,
    pipeline: Pipeline,
    guard: WriteGuard,
    windows: Sequence[WindowMarker],
    name: QualifiedName,
    run_id: str,
) -> TableReplayed:
    with guard.table(name):
        return _rebuilt(spark, pipeline, LandedWindows.of(pipeline), windows, name, run_id)


def _rebuilt(
    spark: SparkProvider,
    pipeline: Pipeline,
    landed: LandedWindows,
    windows: Sequence[WindowMarker],
    name: QualifiedName,
    run_id: str,
) -> TableReplayed:
    """Raises CdcError, OvertakenError among them: nothing is changed then."""
    state = _state(pipeline, landed, name)
    # the snapshot is not in the log
    first = max(windows[0].ordinal, landed.last_until(state.snapshot_lsn) + 1)
    if first > windows[-1].ordinal:
        return TableReplayed(name, "in its snapshot")
    if state.ordinal < first:
        return TableReplayed(name, "not applied yet")
    base = _state_before(pipeline, landed, state, first)
    had = sum(marker.ordinal <= state.ordinal for marker in windows)
    if base.commits == state.commits:  # nothing of it has changed since
        return TableReplayed(name, "nothing to apply", had)
    build = Build(pipeline, landed, base, landed.after(base.ordinal, state.ordinal))
    build.check()
    session = spark()
    with staging_folder(pipeline.lake, state) as folder:
        built = build.in_folder(session, folder)
        version, rows = _put_in_place(session, build, state, built, run_id)
    return TableReplayed(
        name,
        "rebuilt",
        already_applied=had,
        rebuilt_from=base.version,
        changes=built.changes,
        rows_written=rows,
        delta_version=version,
    )


def _put_in_place(
    spark: SparkSession, build: Build, state: TableState, built: BuiltAside, run_id: str
) -> tuple[int, int]:
    """Delta version and number of rows. Raises OvertakenError: another writer has committed since ``state``."""
    path, identity = build.pipeline.lake.table(state.name), build.landed.identity
    provenance = Provenance(
        *identity.stream,
        state.generation,
        snapshot_lsn=state.snapshot_lsn,
        first=build.ahead[0].ordinal,
        last=state.ordinal,
        lo=build.ahead[0].window.lo,
        hi=build.ahead[-1].window.hi,
        relid=state.relid or build.base.relid or 0,
        commits=state.commits + 1,
        run_id=run_id,
        changes=built.changes,
        cause=state.cause,
        partitions=state.partitions,
    )
    with (
        spark_errors(f"{state.name} was not rebuilt"),
        overtaking(path, by_any=True),
        committing_session(spark, provenance) as own,
    ):
        own.read.format("delta").load(built.path).write.format("delta").mode("overwrite").save(path)
        return committed_version(own, path), rows_written(own, path)


def _state(pipeline: Pipeline, landed: LandedWindows, name: QualifiedName) -> TableState:
    """As the table and the latest cut have it."""
    identity = landed.identity
    state = table_state(pipeline.lake, name, *identity.stream)
    if state is None or state.is_lost:
        what = "has no snapshot yet" if state is None else "does not say how far it is: Delta's log clean-up was there"
        raise LakeError(f"{name} {what}", hint=f"postgres-cdc snapshot '{name}'")
    return known_state(state, latest_cut(pipeline.lake))


def _state_before(pipeline: Pipeline, landed: LandedWindows, state: TableState, first: int) -> TableState:
    """The newest one without window ``first`` that grew from the same snapshot, in the same mode."""
    for past in landed.past_states(pipeline.lake, state.name):
        if past.state.generation != state.generation:
            break
        if past.state.ordinal < first:
            return past.state
    raise LakeError(
        f"{state.name}: Delta's log has no version in mode {state.mode} from before window {first}",
        hint=f"choose a later range, or take a new snapshot: postgres-cdc snapshot '{state.name}'",
    )
