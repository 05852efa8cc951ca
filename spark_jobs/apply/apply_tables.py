"""A range of whole windows into Delta tables: each table from its own watermark, in one commit, exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from spark_jobs.apply.found_changes import FoundChanges, changes_on_driver, changes_on_executors
from spark_jobs.apply.landed_changes import landed_bytes, one_relid
from spark_jobs.apply.net_source import NetSource
from spark_jobs.change_counts import NO_CHANGES, ChangeCounts
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.change_log.window_marker import SlotIdentity, WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import CdcError, LakeError, NeedsSnapshotError, OvertakenError
from spark_jobs.lake.net_write import write_net
from spark_jobs.lake.table_commit import Provenance
from spark_jobs.lake.table_state import TableState, table_state
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.progress import Progress, Step, silent
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.spark.errors import spark_errors
from spark_jobs.tables.catalogue_changes import change_without_event
from spark_jobs.tables.understood_windows import understood_windows
from spark_jobs.write_guard import UNGUARDED, WriteGuard

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TABLES_AT_ONCE = 3
# each costs another writer a commit
_ATTEMPTS = 5
# messages of one table's range that are decoded here; of a larger one the driver never sees a row
ON_DRIVER_BYTES = 128 << 20
# each commit leaves a file or two behind; Delta versions between two compactions
_COMPACT_EVERY = 16

Outcome = Literal["applied", "nothing to apply", "already applied", "stopped"]


@dataclass(frozen=True)
class TableApplied:
    """One table brought to the end of window ``last``: what was seen, what was written.

    ``first`` to ``last`` are window ordinals, [``lo``, ``hi``) their WAL. ``outcome``: ``nothing to apply`` and
    ``already applied`` have made no commit and ``delta_version`` is None; ``stopped`` has an ``error``, and what
    earlier commits of this call have written stands. ``state``: the table's since.
    """

    name: QualifiedName
    first: int
    last: int
    lo: Lsn
    hi: Lsn
    outcome: Outcome
    changes: ChangeCounts = NO_CHANGES
    rows_written: int = 0
    delta_version: int | None = None
    state: TableState | None = None
    error: CdcError | None = None


def apply_tables(
    spark: SparkSession,
    pipeline: Pipeline,
    states: Sequence[TableState],
    markers: Sequence[WindowMarker],
    *,
    run_id: str = "",
    progress: Progress = silent,
    on_driver_bytes: int = ON_DRIVER_BYTES,
    guard: WriteGuard = UNGUARDED,
) -> tuple[TableApplied, ...]:
    """Bring each table to the end of the last of ``markers``: landed windows in order, none missing, from the one
    after the lowest watermark on (older ones are passed over).

    ``guard`` keeps other processes from a table while it is written. A table that cannot go on is reported as stopped,
    with its error; the others go on.
    """
    if not markers:
        return ()
    done: dict[QualifiedName, TableApplied] = {}
    with ThreadPoolExecutor(_TABLES_AT_ONCE, thread_name_prefix="apply") as pool:
        running = [
            pool.submit(
                apply_table,
                spark,
                pipeline,
                state,
                markers,
                run_id=run_id,
                on_driver_bytes=on_driver_bytes,
                guard=guard,
            )
            for state in states
        ]
        for future in as_completed(running):
            applied = future.result()
            done[applied.name] = applied
            progress(Step("apply", f"{applied.name}: {applied.outcome}", len(done), len(states), "tables"))
    return tuple(done[state.name] for state in states)


def apply_table(
    spark: SparkSession,
    pipeline: Pipeline,
    state: TableState,
    markers: Sequence[WindowMarker],
    *,
    run_id: str = "",
    on_driver_bytes: int = ON_DRIVER_BYTES,
    guard: WriteGuard = UNGUARDED,
) -> TableApplied:
    """One table, in one commit; what stops it is in the result's ``error``. Anything but a CdcError is a defect, and is
    raised. A window that is not understood stops the table after those before it.

    Where another writer commits in between, whatever the locks say, nothing is written, and what is left to do is
    found out anew.
    """
    try:
        for attempt in Retrying(
            retry=retry_if_exception_type(OvertakenError), stop=stop_after_attempt(_ATTEMPTS), reraise=True
        ):
            with attempt, guard.table(state.name):
                now = _state_now(pipeline, state, markers[-1].identity)
                applied = _apply_ahead(spark, pipeline, now, _from(pipeline, now, markers), run_id, on_driver_bytes)
        return applied
    except CdcError as error:
        last = markers[-1]
        ends = last.ordinal, last.ordinal, last.window.hi, last.window.hi
        return TableApplied(state.name, *ends, "stopped", state=state, error=error)


def _state_now(pipeline: Pipeline, before: TableState, identity: SlotIdentity) -> TableState:
    """Another process may have written the table since ``before`` was read. Raises LakeError: it is gone."""
    now = table_state(pipeline.lake, before.name, identity.system_identifier, identity.slot)
    if now is None:
        raise LakeError(f"{before.name}: its Delta table is gone", hint="run it again: it takes a new snapshot")
    if now.generation != before.generation:
        return now
    # what the cut knew of windows without changes holds on
    return replace(now, ordinal=max(now.ordinal, before.ordinal))


def _from(pipeline: Pipeline, state: TableState, markers: Sequence[WindowMarker]) -> Sequence[WindowMarker]:
    """``markers``, and those before them that a table needs where another process has put an older snapshot in its
    place."""
    if state.ordinal + 1 >= markers[0].ordinal:
        return markers
    landed = ChangeLog(pipeline.lake.change_log).markers(state.ordinal)
    return tuple(marker for marker in landed if marker.ordinal <= markers[-1].ordinal)


def _apply_ahead(
    spark: SparkSession,
    pipeline: Pipeline,
    state: TableState,
    markers: Sequence[WindowMarker],
    run_id: str,
    on_driver_bytes: int,
) -> TableApplied:
    if state.is_lost:
        raise NeedsSnapshotError(
            f"{state.name}: Delta's log clean-up has removed the commit that says how far the table is",
            hint=f"take a new snapshot of this table: postgres-cdc snapshot '{state.name}'",
        )
    ahead = [marker for marker in markers if marker.ordinal > state.ordinal]
    if changed := change_without_event(ahead, state):
        raise changed
    understood, error = understood_windows(ahead, state)
    if not understood:
        last = ahead[0] if ahead else markers[-1]
        ends = last.window.hi, last.window.hi
        outcome: Outcome = "stopped" if error else "already applied"
        return TableApplied(state.name, last.ordinal, last.ordinal, *ends, outcome, state=state, error=error)
    result = _apply_range(spark, pipeline, state, understood, run_id, on_driver_bytes)
    return result if error is None or result.error is not None else replace(result, outcome="stopped", error=error)


def _apply_range(
    spark: SparkSession,
    pipeline: Pipeline,
    state: TableState,
    ahead: Sequence[WindowMarker],
    run_id: str,
    on_driver_bytes: int,
) -> TableApplied:
    result = TableApplied(
        state.name,
        ahead[0].ordinal,
        ahead[-1].ordinal,
        ahead[0].window.lo,
        ahead[-1].window.hi,
        "nothing to apply",
        state=state,
    )
    try:
        if ahead[0].ordinal != state.ordinal + 1:
            raise NeedsSnapshotError(
                f"{state.name} has been brought to window {state.ordinal}, and the next one landed is"
                f" {ahead[0].ordinal}",
                hint=f"take a new snapshot of this table: postgres-cdc snapshot '{state.name}'",
            )
        relid = one_relid(ahead, state)
        if relid is None:  # no read, no scan, no commit
            return result
        on_driver = landed_bytes(ahead, relid) <= on_driver_bytes
        find = changes_on_driver if on_driver else changes_on_executors
        with find(spark, pipeline, state, relid, ahead) as found:
            return result if found is None else _commit(spark, pipeline, result, relid, ahead, run_id, found)
    except OvertakenError:
        raise
    except CdcError as error:
        return replace(result, outcome="stopped", error=error)


def _commit(
    spark: SparkSession,
    pipeline: Pipeline,
    before: TableApplied,
    relid: int,
    markers: Sequence[WindowMarker],
    run_id: str,
    found: FoundChanges,
) -> TableApplied:
    """One commit; none when the range changes nothing. Raises OvertakenError."""
    assert before.state is not None
    state, net = before.state, found.net
    counted = replace(before, changes=net.changes)
    if not net.rows and not net.form.truncated:
        return counted
    provenance = _provenance(markers, state, relid, run_id, net)
    compact = state.version % _COMPACT_EVERY == _COMPACT_EVERY - 1
    with spark_errors(f"{state.name}: windows {markers[0].ordinal} to {markers[-1].ordinal} were not applied"):
        path, shape = pipeline.lake.table(state.name), found.landed.shape
        version = write_net(spark, path, shape, net.form, net.read, provenance, compact=compact)
    identity = markers[-1].identity
    after = table_state(pipeline.lake, state.name, identity.system_identifier, identity.slot)
    return replace(counted, outcome="applied", rows_written=net.rows, delta_version=version, state=after)


def _provenance(
    markers: Sequence[WindowMarker], state: TableState, relid: int, run_id: str, net: NetSource
) -> Provenance:
    return Provenance(
        system_identifier=markers[-1].identity.system_identifier,
        slot=markers[-1].identity.slot,
        generation=state.generation,
        snapshot_lsn=state.snapshot_lsn,
        first=markers[0].ordinal,
        last=markers[-1].ordinal,
        lo=markers[0].window.lo,
        hi=markers[-1].window.hi,
        relid=relid,
        commits=state.commits + 1,
        run_id=run_id,
        changes=net.changes,
        cause=state.cause,
    )
