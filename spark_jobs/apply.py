"""A range of whole windows into Delta tables: each table from its own watermark, in one commit, exactly once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from spark_jobs.change_log import ChangeLog
from spark_jobs.configuration import Pipeline
from spark_jobs.delta_table import check_columns
from spark_jobs.errors import CdcError, GapError
from spark_jobs.landed_changes import LandedChanges, counts_of, landed_changes, one_relid
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.net_change import NetChange, net_change
from spark_jobs.net_source import net_frame
from spark_jobs.net_write import NetForm, key_range_of, write_net
from spark_jobs.progress import Progress, Step, silent
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.spark_errors import spark_errors
from spark_jobs.table_commit import Provenance
from spark_jobs.table_state import TableState, table_state
from spark_jobs.window_marker import WindowMarker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TABLES_AT_ONCE = 2
# raw messages decoded at once on the driver; a longer range is applied in several commits
_RANGE_BYTES = 512 << 20
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
    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    truncates: int = 0
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
) -> tuple[TableApplied, ...]:
    """Bring each table to the end of the last of ``markers``: landed windows in order, none missing, from the one
    after the lowest watermark on (older ones are passed over).

    A table that cannot go on is reported as stopped, with its error; the others go on.
    """
    if not markers:
        return ()
    done: dict[QualifiedName, TableApplied] = {}
    with ThreadPoolExecutor(_TABLES_AT_ONCE, thread_name_prefix="apply") as pool:
        running = [pool.submit(apply_table, spark, pipeline, state, markers, run_id=run_id) for state in states]
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
) -> TableApplied:
    """One table; what stops it is in the result's ``error``. Anything but a CdcError is a defect, and is raised."""
    ahead = [marker for marker in markers if marker.ordinal > state.ordinal]
    if not ahead:
        last = markers[-1]
        ends = last.window.hi, last.window.hi
        return TableApplied(state.name, last.ordinal, last.ordinal, *ends, "already applied", state=state)
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
            raise GapError(
                f"{state.name} has been brought to window {state.ordinal}, and the next one landed is"
                f" {ahead[0].ordinal}",
                hint=f"re-snapshot this table: postgres-cdc snapshot '{state.name}'",
            )
        relid = one_relid(ahead, state)
        if relid is None:  # no read, no scan, no commit
            return result
        for part in _parts(ahead, state.name):
            result = _apply_range(spark, pipeline, result, relid, part, run_id)
    except CdcError as error:
        return replace(result, outcome="stopped", error=error)
    return result


def _parts(markers: Sequence[WindowMarker], name: QualifiedName) -> Iterator[Sequence[WindowMarker]]:
    """Whole windows whose changes of one table are about ``_RANGE_BYTES`` together; one larger window stays whole."""
    start, size = 0, 0
    for at, marker in enumerate(markers):
        own = sum(counts.inserts + counts.updates + counts.deletes for counts in counts_of(marker, name))
        weight = marker.bytes * own // max(1, marker.changes)
        if at > start and size + weight > _RANGE_BYTES:
            yield markers[start:at]
            start, size = at, 0
        size += weight
    yield markers[start:]


def _apply_range(
    spark: SparkSession,
    pipeline: Pipeline,
    before: TableApplied,
    relid: int,
    markers: Sequence[WindowMarker],
    run_id: str,
) -> TableApplied:
    """One commit, added to the counts of ``before``; none when the range changes nothing."""
    assert before.state is not None
    state, path = before.state, pipeline.lake.table(before.name)
    changes = landed_changes(ChangeLog(pipeline.lake.change_log), relid, state, markers[0].ordinal, markers[-1].ordinal)
    if changes is None:
        return before
    with spark_errors(f"{state.name}: the table at {path} cannot be read"):
        check_columns(spark, path, changes.shape, changes.shape_lsn)
    net = net_change(changes.rows, changes.relations, changes.shape, on_unrepresentable=pipeline.on_unrepresentable)
    if not net.rows.num_rows and not net.truncated:
        return _counted(before, net)
    provenance = _provenance(markers, state, relid, run_id, net)
    with spark_errors(f"{state.name}: windows {markers[0].ordinal} to {markers[-1].ordinal} were not applied"):
        version = _write(
            spark, pipeline, changes, net, provenance, compact=state.version % _COMPACT_EVERY == _COMPACT_EVERY - 1
        )
    identity = markers[-1].identity
    after = table_state(pipeline.lake, state.name, identity.system_identifier, identity.slot)
    if version is None:
        outcome: Outcome = "applied" if before.outcome == "applied" else "already applied"
        return replace(before, outcome=outcome, state=after)
    return replace(
        _counted(before, net),
        outcome="applied",
        rows_written=before.rows_written + net.rows.num_rows,
        delta_version=version,
        state=after,
    )


def _write(
    spark: SparkSession,
    pipeline: Pipeline,
    changes: LandedChanges,
    net: NetChange,
    provenance: Provenance,
    *,
    compact: bool,
) -> int | None:
    form = NetForm(
        tuple(net.rows.column_names),
        net.truncated,
        net.insert_only,
        key_range_of(net.rows, changes.shape),
    )
    with net_frame(net.rows, changes.shape, pipeline.lake) as frame:
        return write_net(
            spark, pipeline.lake.table(changes.shape.name), changes.shape, form, frame, provenance, compact=compact
        )


def _provenance(
    markers: Sequence[WindowMarker], state: TableState, relid: int, run_id: str, net: NetChange
) -> Provenance:
    return Provenance(
        system_identifier=markers[-1].identity.system_identifier,
        slot=markers[-1].identity.slot,
        snapshot_lsn=state.snapshot_lsn,
        first=markers[0].ordinal,
        last=markers[-1].ordinal,
        lo=markers[0].window.lo,
        hi=markers[-1].window.hi,
        relid=relid,
        run_id=run_id,
        inserts=net.inserts,
        updates=net.updates,
        deletes=net.deletes,
        truncates=net.truncates,
    )


def _counted(before: TableApplied, net: NetChange) -> TableApplied:
    return replace(
        before,
        inserts=before.inserts + net.inserts,
        updates=before.updates + net.updates,
        deletes=before.deletes + net.deletes,
        truncates=before.truncates + net.truncates,
    )
