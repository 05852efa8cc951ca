"""Read partitions again that were attached, detached or dropped without row events, and nothing else of their tables.

They are read at the LSN of an exported snapshot: capture lands windows up to exactly that LSN, then one commit brings
each table there. If anything is in doubt, the table is left as it is, for a new snapshot of the whole table.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from spark_jobs.apply.apply_tables import apply_tables
from spark_jobs.apply.regions_read import can_be_read_by_region
from spark_jobs.apply.table_applied import TableApplied
from spark_jobs.apply.table_range import TableRange
from spark_jobs.capture.capture import capture_through
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import (
    AlteredWhileReadError,
    CdcError,
    DecodeError,
    NeedsSnapshotError,
    OvertakenError,
    SnapshotWaitsError,
    UnrepresentableError,
)
from spark_jobs.postgres.connection import Connection
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.repair.region_plan import RegionPlan, TablesSeen
from spark_jobs.run import Run
from spark_jobs.snapshot.export import ExportedSnapshot
from spark_jobs.snapshot.exporter import Exporter
from spark_jobs.tables.catalogue_changes import regions_changed
from spark_jobs.tables.followed_tables import watched_tables

# another process may land a window across the snapshot's LSN: then another snapshot is tried
_ATTEMPTS = 3
# errors after which a snapshot of the whole table helps
_READ_WHOLE = (NeedsSnapshotError, DecodeError, UnrepresentableError, AlteredWhileReadError)


@dataclass(frozen=True)
class PartitionsReport:
    """``tables``: those that were tried, except those that need a snapshot of the whole table. ``windows``: those that
    were landed for it."""

    tables: tuple[TableApplied, ...] = ()
    windows: tuple[WindowMarker, ...] = ()

    def outcome(self, before: TableApplied) -> TableApplied:
        """The table's outcome if its partitions were tried, else ``before``."""
        return next((table for table in self.tables if table.name == before.name), before)


def read_partitions(run: Run, outcomes: Iterable[TableApplied], exporter: Exporter) -> PartitionsReport:
    """Bring tables that stopped only because partitions were attached or removed to the LSN of a new exported snapshot,
    from which just these partitions are read. With ``on_rewrite: error`` all tables remain stopped.

    ``outcomes``: results of applying, of which other tables are ignored. A table that needs a snapshot of the whole
    table is not in the report; one that may succeed the next time is in it with its error.
    """
    pipeline = run.pipeline
    stopped = {outcome.name: outcome for outcome in outcomes if _may_be_read_alone(pipeline, outcome)}
    if pipeline.on_rewrite == "error" or not stopped:
        return PartitionsReport()
    with run.guarded() as run:
        landed: list[WindowMarker] = []
        try:
            done = _read(run, stopped, exporter, landed)
        except CdcError as error:
            done = [_stopped(outcome, error) for outcome in stopped.values()]
    tried = (table for table in done if not isinstance(table.error, _READ_WHOLE))
    return PartitionsReport(tuple(tried), tuple(landed))


def _may_be_read_alone(pipeline: Pipeline, outcome: TableApplied) -> bool:
    """Whether partitions of the table may be read alone, as far as that is known without asking the source."""
    state = outcome.state
    if state is None or state.relid is None or not isinstance(outcome.error, NeedsSnapshotError):
        return False
    plain = state.relation not in pipeline.masks and pipeline.source.has_publications
    return plain and can_be_read_by_region(state)


def _read(
    run: Run, stopped: dict[QualifiedName, TableApplied], exporter: Exporter, landed: list[WindowMarker]
) -> list[TableApplied]:
    """``landed`` gets the windows that are landed for it."""
    log = run.log
    stopped = {work.name: stopped[work.name] for work in _with_regions(run, stopped)}
    for attempt in range(1, _ATTEMPTS + 1):
        if not stopped:
            break
        checkpoint = log.checkpoint()
        assert checkpoint is not None
        exporter.begin(checkpoint)
        with exporter.exported(run.progress) as (exported, connection):
            landed += capture_through(run, exported.lsn)
            last = log.checkpoint()
            if last is not None and last.window.hi == exported.lsn:
                return _at_one_lsn(run, stopped, exported, connection, last)
        if attempt == _ATTEMPTS:
            raise OvertakenError(f"another process lands windows across {exported.lsn}", hint="run it again")
    return []


def _with_regions(
    run: Run, stopped: dict[QualifiedName, TableApplied], last: WindowMarker | None = None
) -> list[TableRange]:
    """What is ahead of those tables of which only partitions changed, up to window ``last``."""
    states = [outcome.state for outcome in stopped.values() if outcome.state is not None]
    landed = run.log.markers(min(state.ordinal for state in states))
    markers = [marker for marker in landed if last is None or marker.ordinal <= last.ordinal]
    ahead = [TableRange(run, state, [each for each in markers if each.ordinal > state.ordinal]) for state in states]
    return [work for work in ahead if regions_changed(work.markers, work.state) and not work.changes.truncates]


def _at_one_lsn(
    run: Run,
    stopped: dict[QualifiedName, TableApplied],
    exported: ExportedSnapshot,
    connection: Connection,
    last: WindowMarker,
) -> list[TableApplied]:
    """``last``: the log's last window, which ends at the snapshot's LSN."""
    watched = watched_tables(run.pipeline, tuple(stopped), last)
    tables = TablesSeen.of(connection, watched, run.log, last)
    done: list[TableApplied] = []
    ready: list[TableRange] = []
    for work in _with_regions(run, stopped, last):
        try:
            ready.append(replace(work, regions=RegionPlan(work, exported, watched).read(connection, tables)))
        except CdcError as error:
            done.append(_stopped(stopped[work.name], error))
    done += apply_tables(ready)
    return [table if table.error is None else _stopped(stopped[table.name], table.error) for table in done]


def _stopped(outcome: TableApplied, error: CdcError) -> TableApplied:
    """``outcome`` with an error that says why its partitions had to be read again, and why that failed."""
    assert outcome.error is not None
    if isinstance(error, NeedsSnapshotError):
        return replace(outcome, error=error)
    waits = isinstance(error, SnapshotWaitsError)
    failed = "its partitions can be read later" if waits else "its partitions could not be read again"
    why = f"{outcome.error.what}; {failed}: {error.what}"
    return replace(outcome, error=type(error)(why, hint=error.hint))
