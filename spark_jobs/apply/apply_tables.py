"""Ranges of whole windows into Delta tables: each table from its own watermark, in one commit, exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from typing import TYPE_CHECKING

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from spark_jobs.apply.landed_changes import one_relid
from spark_jobs.apply.net_of_range import net_of_range
from spark_jobs.apply.table_applied import TableApplied
from spark_jobs.apply.table_range import TableRange
from spark_jobs.errors import CdcError, NeedsSnapshotError, OvertakenError
from spark_jobs.lake.net_write import NetSource, write_net
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
# each commit leaves a file or two behind; Delta versions between two compactions
_COMPACT_EVERY = 16


def apply_tables(
    spark: SparkSession,
    work: Sequence[TableRange],
    *,
    progress: Progress = silent,
    guard: WriteGuard = UNGUARDED,
) -> tuple[TableApplied, ...]:
    """Bring each table to the end of its range; windows that it is past already are passed over.

    ``guard`` keeps other processes from a table while it is written. A table that cannot go on is reported as stopped,
    with its error; the others go on.
    """
    done: dict[QualifiedName, TableApplied] = {}
    with ThreadPoolExecutor(_TABLES_AT_ONCE, thread_name_prefix="apply") as pool:
        for future in as_completed([pool.submit(apply_table, spark, each, guard) for each in work]):
            applied = future.result()
            done[applied.name] = applied
            progress(Step("apply", f"{applied.name}: {applied.outcome}", len(done), len(work), "tables"))
    return tuple(done[each.name] for each in work)


def apply_table(spark: SparkSession, work: TableRange, guard: WriteGuard = UNGUARDED) -> TableApplied:
    """One table, in one commit; what stops it is in the result's ``error``. Anything but a CdcError is a defect, and is
    raised. A window that is not understood stops the table after those before it.

    Where another writer commits in between, whatever the locks say, nothing is written, and what is left to do is
    found out anew.
    """
    try:
        for attempt in Retrying(
            retry=retry_if_exception_type(OvertakenError), stop=stop_after_attempt(_ATTEMPTS), reraise=True
        ):
            with attempt, guard.table(work.name):
                applied = _apply_ahead(spark, work)
        return applied
    except CdcError as error:
        return TableApplied.without_commit(work.name, work.last, state=work.state, error=error)


def _apply_ahead(spark: SparkSession, work: TableRange) -> TableApplied:
    """What is left of the range, from where the table stands now."""
    state = work.state_now()
    if state.is_lost:
        raise NeedsSnapshotError(
            f"{state.name}: Delta's log clean-up has removed the commit that says how far the table is",
            hint=f"take a new snapshot of this table: postgres-cdc snapshot '{state.name}'",
        )
    ahead = work.after(state)
    if ahead is None:
        return TableApplied.without_commit(work.name, work.last, "already applied", state=state)
    if changed := change_without_event(ahead.markers, state):
        raise changed
    understood, error = understood_windows(ahead.markers, state)
    if not understood:
        return TableApplied.without_commit(work.name, ahead.first, state=state, error=error)
    result = _apply_range(spark, replace(ahead, markers=understood))
    return result if error is None or result.error is not None else replace(result, outcome="stopped", error=error)


def _apply_range(spark: SparkSession, work: TableRange) -> TableApplied:
    first, last, state = work.first, work.last, work.state
    ends = first.ordinal, last.ordinal, first.window.lo, last.window.hi
    result = TableApplied(work.name, *ends, "nothing to apply", state=state)
    try:
        if first.ordinal != state.ordinal + 1:
            raise NeedsSnapshotError(
                f"{work.name} has been brought to window {state.ordinal}, and the next one landed is {first.ordinal}",
                hint=f"take a new snapshot of this table: postgres-cdc snapshot '{work.name}'",
            )
        relid = one_relid(work)
        if relid is None:  # no read, no scan, no commit
            return result
        with net_of_range(spark, work, relid) as net:
            return result if net is None else _commit(spark, work, relid, net, result)
    except OvertakenError:
        raise
    except CdcError as error:
        return replace(result, outcome="stopped", error=error)


def _commit(spark: SparkSession, work: TableRange, relid: int, net: NetSource, before: TableApplied) -> TableApplied:
    """One commit; none when the range changes nothing. Raises OvertakenError."""
    counted = replace(before, changes=net.changes)
    if net.is_empty:
        return counted
    compact = work.state.version % _COMPACT_EVERY == _COMPACT_EVERY - 1
    with spark_errors(f"{work.name}: windows {work.first.ordinal} to {work.last.ordinal} were not applied"):
        version = write_net(spark, work.path, net, work.provenance(relid, net.changes), compact=compact)
    return replace(counted, outcome="applied", rows_written=net.rows, delta_version=version, state=work.state_since())
