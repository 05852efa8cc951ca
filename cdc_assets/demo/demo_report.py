"""The result of a demonstration: each table, and the totals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import SecretStr

from spark_jobs.errors import why_read
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.status import PipelineStatus
from spark_jobs.sync import SyncReport
from spark_jobs.verify.table_verified import TableVerified


@dataclass(frozen=True)
class Comparison:
    """``differing_columns``: those of the first rows that differ."""

    name: QualifiedName
    source_rows: int
    lake_rows: int
    differing_columns: tuple[str, ...]
    equal: bool


@dataclass(frozen=True)
class TableResult:
    """One table at the end. ``changes`` were applied after its snapshot of ``snapshot_rows``; it is ``lag_bytes`` of
    WAL behind the source after the last sync, and was ``lag_bytes_before`` before it. ``read_again``: why it got a
    second snapshot, empty if it did not; ``partitions``: those whose rows were read again without the rest of the
    table; ``columns``: the changes of its columns in place."""

    name: QualifiedName
    comparison: Comparison
    snapshot_rows: int
    changes: int
    lag_bytes_before: int = field(metadata={"formerly": "lag_before"})
    lag_bytes: int = field(metadata={"formerly": "lag_after"})
    read_again: str = ""
    partitions: str = ""
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class KeptServer:
    """A server that is left running. ``programs``: the folder of ``psql`` and ``pgbench``."""

    dsn: SecretStr
    programs: Path


@dataclass(frozen=True)
class DemoReport:
    """``sync_seconds`` is the time spent in the syncs after the first one, capture included; these applied
    ``followed_changes``. ``kept``: the server, if it is left running."""

    tables: tuple[TableResult, ...]
    lake: Path
    configuration: Path
    kept: KeptServer | None
    windows: int
    followed_changes: int
    snapshot_seconds: float
    sync_seconds: float
    seconds: float

    @property
    def equal(self) -> bool:
        return all(table.comparison.equal for table in self.tables)

    @property
    def changes(self) -> int:
        return sum(table.changes for table in self.tables)

    @property
    def changes_per_second(self) -> float:
        return self.followed_changes / self.sync_seconds if self.sync_seconds else 0.0


def alterations(report: SyncReport) -> Iterator[str]:
    """What one sync did about altered tables, a line for each."""
    for table in report.tables:
        if table.columns:
            yield f"columns of {table.name}: {'; '.join(table.columns)}"
        if table.partitions:
            yield f"of {table.name} only partitions were read again"
    yield from (
        f"{table.name} was read again: {why_read(table.name, table.reason)}"
        for table in report.snapshots
        if table.reason
    )


def changes_of(report: SyncReport) -> int:
    """How many changes the sync applied."""
    return sum(table.changes.total for table in report.tables)


def table_result(
    verified: TableVerified, syncs: Sequence[SyncReport], before: PipelineStatus, after: PipelineStatus
) -> TableResult:
    """``syncs``: all of the demonstration, the first one with the snapshot. ``before`` and ``after`` are the statuses
    around the last one. Raises CdcError for a table that could not be compared."""
    if verified.error is not None:
        raise verified.error
    name, counts = verified.name, verified.counts
    columns = dict.fromkeys(column for row in verified.rows for column in row.columns)
    snapshots = [table for sync in syncs for table in sync.snapshots if table.name == name]
    applied = [table for sync in syncs for table in sync.tables if table.name == name]
    reasons = [why_read(name, snapshot.reason) for snapshot in snapshots if snapshot.reason]
    partitions = [f"{read.reason} ({read.rows:,} rows)" for table in applied if (read := table.partitions)]
    return TableResult(
        name=name,
        comparison=Comparison(name, counts.source_rows, counts.lake_rows, tuple(columns), verified.verdict == "equal"),
        snapshot_rows=snapshots[-1].rows if snapshots else 0,
        changes=sum(table.changes.total for table in applied),
        lag_bytes_before=_lag(before, name),
        lag_bytes=_lag(after, name),
        read_again=reasons[-1] if reasons else "",
        partitions=partitions[-1] if partitions else "",
        columns=tuple(column for table in applied for column in table.columns),
    )


def _lag(status: PipelineStatus, name: QualifiedName) -> int:
    return next(table.lag_bytes or 0 for table in status.tables if table.name == name)
