"""Apply ranges of whole windows to Delta tables: each table from its own watermark, exactly once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from threading import Lock

from spark_jobs.apply.follow_columns import follow_columns
from spark_jobs.apply.landed_changes import LandedChanges
from spark_jobs.apply.net_change.net_of_range import columns_of_lake, landed_in_range, net_of_range
from spark_jobs.apply.net_of_regions import net_of_regions
from spark_jobs.apply.table_applied import TableApplied
from spark_jobs.apply.table_range import TableRange
from spark_jobs.change_log.window_marker import first_missing
from spark_jobs.errors import CdcError, NeedsSnapshotError, OtherModeError, OvertakenError, new_snapshot
from spark_jobs.lake.table_state import TableState
from spark_jobs.progress import Step
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.retries import PASSING, again_when_overtaken
from spark_jobs.spark.errors import spark_errors
from spark_jobs.tables.catalogue_changes import change_without_event
from spark_jobs.tables.configured_otherwise import needs_new_generation
from spark_jobs.tables.refused_changes import accepted_windows, refused_columns, refused_snapshot
from spark_jobs.tables.understood_windows import understood_windows
from spark_jobs.writers.annotated_table import annotate_table
from spark_jobs.writers.net_source import NetSource
from spark_jobs.writers.table_commit import Provenance
from spark_jobs.writers.table_writer import WrittenTable, record, write_net
from spark_jobs.writers.with_spark.delta_table import table_at

_TABLES_AT_ONCE = 3


def apply_tables(work: Sequence[TableRange]) -> tuple[TableApplied, ...]:
    """Bring each table to the end of its range. Windows that a table already has are skipped.

    A table that cannot go on is reported as stopped, with its error; the others go on. Results are in the order of
    ``work``. Several tables are applied to at once, but only one whose changes take much of this process's memory.
    """
    done: dict[QualifiedName, TableApplied] = {}
    one_large = Lock()

    def apply_alone_if_large(each: TableRange) -> TableApplied:
        takes_much = each.bytes * _TABLES_AT_ONCE > each.pipeline.writes.on_driver_bytes
        is_large = takes_much and (each.is_small or each.may_be_in_turn)
        with one_large if is_large else nullcontext():
            return apply_table(each)

    with ThreadPoolExecutor(_TABLES_AT_ONCE, thread_name_prefix="apply") as pool:
        for future in as_completed([pool.submit(apply_alone_if_large, each) for each in work]):
            applied = future.result()
            done[applied.name] = applied
            step = Step("apply", f"{applied.name}: {applied.outcome}", len(done), len(work), "tables")
            work[0].run.progress(step)
    return tuple(done[each.name] for each in work)


def apply_table(work: TableRange) -> TableApplied:
    """Bring one table to the end of its range, in one commit; or in a few, if this process applies a larger range in
    less time than executors.

    A CdcError is returned as the result's ``error``; any other exception is a defect and is raised. A window that this
    version cannot decode stops the table, after the windows before it are applied. If another writer commits in
    between, nothing is written, and the remaining work is determined again.
    """
    rest: TableRange | None = work
    done: TableApplied | None = None
    while rest is not None and (done is None or done.error is None):
        first = rest.first_in_turn()
        done = _without_lossy_snapshot(first, _apply_or_stop(first)).after(done)
        state = done.state or rest.state
        rest = rest.after(replace(state, ordinal=max(state.ordinal, first.last.ordinal)))
    assert done is not None
    return done


def _apply_or_stop(work: TableRange) -> TableApplied:
    try:
        return _apply_guarded(work)
    except CdcError as error:
        return TableApplied.without_commit(work.name, work.last, state=work.state, error=error)


def _without_lossy_snapshot(work: TableRange, done: TableApplied) -> TableApplied:
    """A table that needs a snapshot, which would lose kept columns, stops without one being exported."""
    error, state = done.error, done.state
    if state is None or not isinstance(error, NeedsSnapshotError) or isinstance(error, OtherModeError):
        return done
    refused = refused_snapshot(state, work.policy)
    return done if refused is None else replace(done, error=refused.within(error.what))


@again_when_overtaken
def _apply_guarded(work: TableRange) -> TableApplied:
    with work.run.guard.table(work.name):
        return _apply_ahead(work)


def _apply_ahead(work: TableRange) -> TableApplied:
    """Apply the rest of the range, from the table's current state, as far as the configuration lets its windows in and
    they are understood. An error is reported with that state: it holds the cause of the last snapshot, which decides
    whether the next one has to wait.
    """
    state = work.state_now()
    without_commit = partial(TableApplied.without_commit, work.name, state=state)
    if error := needs_new_generation(work.pipeline, state):
        return without_commit(work.last, error=error)
    ahead = work.after(state)
    if ahead is None:
        return without_commit(work.last, "already applied")
    accepted, refused = accepted_windows(ahead.markers, state, work.policy)
    changed = change_without_event(accepted, state)
    understood, unknown = understood_windows(accepted, state)
    stop = unknown or refused
    # the regions were read at the end of all windows, so the range cannot be cut short with them
    regions = ahead.regions if changed and stop is None else None
    if changed and not (regions and regions.make_up_for(accepted, state)):
        return without_commit(accepted[-1], error=changed)
    if not understood:
        return without_commit(ahead.first, error=stop)
    result = _apply_range(replace(ahead, markers=understood, regions=regions))
    return result if stop is None or result.error is not None else replace(result, outcome="stopped", error=stop)


def _apply_range(work: TableRange) -> TableApplied:
    result = TableApplied.nothing_of(work)
    try:
        if (missing := first_missing(work.state.ordinal, work.markers)) is not None:
            raise NeedsSnapshotError(
                f"{work.name} has been brought to window {work.state.ordinal}, and the change log does not hold window"
                f" {missing}",
                hint=new_snapshot(work.name),
            )
        if (regions := work.regions) is not None:
            _annotate(work)
            work = work.with_open_table()
            with net_of_regions(work, regions) as (net, partitions):
                provenance = replace(work.provenance(net.changes), partitions=partitions)
                return _commit(work, provenance, net, replace(result, partitions=partitions))
        if not work.concerns_table():  # no read, no scan, and no commit but of what the source says about the table
            return _columns_followed(work, result) if _annotate(work) else result
        work = work.with_open_table(work.state.version)
        with log_read_ahead(work):
            landed = landed_in_range(work, columns_of_lake(work))
            if landed is None:
                return _columns_followed(work, result) if _annotate(work) else result
            result = replace(result, columns=landed.words)
            if landed.columns:
                _require_accepted(work, landed)
                work = follow_columns(work, landed).with_open_table()
            # before the rows: once they are committed, nobody would do it after a crash
            if is_annotated := _annotate(work, anew=bool(landed.columns)):
                work = work.with_open_table()
            if landed.columns or is_annotated:
                result = _columns_followed(work, result)
            with net_of_range(work, landed) as net:
                landed = landed.without_rows()
                provenance = replace(work.provenance(net.changes, landed.words), differing=landed.differing)
                return _commit(work, provenance, net, result)
    except PASSING:
        raise
    except CdcError as error:
        return replace(result, outcome="stopped", error=error)


@contextmanager
def log_read_ahead(work: TableRange) -> Iterator[None]:
    """While the driver computes a large net change, Spark reads the table's Delta log, which it needs next. The first
    write of a session loads the code for this, too: 1.8 of its 10.5 s of CPU time no longer come after the net change.

    Nothing depends on it: a failure is ignored, as the write will meet it again. Nothing is read if this process may
    write the change, for few changes, and where executors compute the net change."""
    limits = work.pipeline.writes
    if not work.is_for_spark or not limits.read_ahead_bytes <= work.bytes <= limits.on_driver_bytes:
        yield
        return
    with ThreadPoolExecutor(1, thread_name_prefix="read-ahead") as ahead:
        ahead.submit(lambda: table_at(work.run.spark(), work.path).inputFiles())
        yield


def _annotate(work: TableRange, *, anew: bool = False) -> bool:
    """Have the table say what the source said about it at the end of the range. Returns whether that needed a commit.
    Raises OvertakenError."""
    annotations = work.annotations(anew=anew)
    if annotations is None:
        return False
    with spark_errors(f"{work.name}: its comments were not written", name=work.name, path=work.path):
        return annotate_table(work.path, annotations, work.run.spark, work.opened)


def _require_accepted(work: TableRange, landed: LandedChanges) -> None:
    """The looks at the catalogue have announced every change of a column; what they may have missed is refused here."""
    changes, where = landed.columns, f"before window {work.first.ordinal} ({work.first.window})"
    touched = {*changes.dropped, *(old for old, _ in (*changes.renamed, *changes.widened))}
    new = (*changes.added, *(column for _, column in (*changes.renamed, *changes.widened)))
    shape = replace(landed.shape, columns=tuple(dict.fromkeys(new)))
    if refused := refused_columns(tuple(touched), shape, work.policy, where, types=True):
        raise refused


def _columns_followed(work: TableRange, before: TableApplied) -> TableApplied:
    """The result if the range changes nothing but the columns, or what the source says about them."""
    state = work.state_since()
    version = None if state is None else state.version
    return replace(before, outcome="applied", delta_version=version, state=state)


def _commit(work: TableRange, provenance: Provenance, net: NetSource, before: TableApplied) -> TableApplied:
    """Commit the net change. If it is empty, only columns that differ from the source otherwise than before are
    recorded. Raises OvertakenError."""
    counted = replace(before, changes=net.changes)
    failed = f"{work.name}: {work.windows} were not applied"
    table = WrittenTable(work.pipeline, work.name, work.run.spark, failed, work.opened)
    if net.is_empty:
        if provenance.partitions is None and provenance.differing == work.state.differing:
            return counted
        version = record(replace(table, failed=f"{work.name}: its columns were not recorded"), provenance)
        state = provenance.state(work.name, version)
        return replace(counted, outcome="applied", delta_version=version, state=state)
    every = work.pipeline.writes.compact_every
    written = write_net(table, net, provenance, compacts=work.state.version % every == every - 1)
    # if the table may have been compacted, too, its own log says what the newest version is
    since = _state_at_end(work) if written.way.compacts else written.provenance.state(work.name, written.version)
    return replace(
        counted,
        outcome="applied",
        rows_written=net.rows,
        delta_version=written.version,
        engine=written.way.writer,
        strategy=written.way.strategy,
        state=since,
    )


def _state_at_end(work: TableRange) -> TableState:
    since = work.state_since()
    if since is None or since.ordinal < work.last.ordinal:
        raise OvertakenError(f"the commit to {work.path} is gone: another writer has replaced it", hint="run it again")
    return since
