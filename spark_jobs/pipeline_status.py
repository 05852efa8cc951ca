"""Where the slot, the change log and each table stand: read without Spark, and nothing is changed."""

from __future__ import annotations

from dataclasses import dataclass

from spark_jobs.change_log.log import ChangeLog
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import CdcError, SlotError, SourceError
from spark_jobs.followed_tables import configured_names, followed_names
from spark_jobs.lake.cuts import Cut, latest_cut
from spark_jobs.lake.table_state import TableState, table_state
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.postgres.connection import connected
from spark_jobs.postgres.health import SlotHealth, slot_health
from spark_jobs.postgres.privileges import slot_exists
from spark_jobs.qualified_name import QualifiedName


@dataclass(frozen=True)
class LogStatus:
    """What is landed: ``windows`` of them, up to ``landed_end``; ``behind_bytes`` of WAL are not, None: not known."""

    windows: int
    landed_end: Lsn
    behind_bytes: int | None


@dataclass(frozen=True)
class TableStatus:
    """One table: it shows the source at ``applied_lsn``; all None before its snapshot.

    ``behind_windows`` are landed but not applied, with ``behind_changes`` of this table in them; ``behind_bytes`` is
    the WAL between it and the source.
    """

    name: QualifiedName
    snapshot_lsn: Lsn | None = None
    applied_lsn: Lsn | None = None
    behind_windows: int | None = None
    behind_changes: int | None = None
    behind_bytes: int | None = None
    delta_version: int | None = None
    error: CdcError | None = None


@dataclass(frozen=True)
class PipelineStatus:
    """``slot`` is None when it is not there or cannot be asked; ``source_error`` then says why."""

    pipeline: str
    lake: str
    slot: SlotHealth | None
    source_error: CdcError | None
    log: LogStatus | None
    tables: tuple[TableStatus, ...]

    @property
    def errors(self) -> tuple[CdcError, ...]:
        found = (self.source_error, *(table.error for table in self.tables))
        return tuple(error for error in found if error is not None)


@dataclass(frozen=True)
class _Landed:
    """The log's markers, by ordinal, and the newest cut."""

    last: WindowMarker
    markers: tuple[WindowMarker, ...]
    cut: Cut | None


def pipeline_status(pipeline: Pipeline) -> PipelineStatus:
    """Ask both sides. A source that cannot be reached, or a table that cannot be read, is told in the result.

    Raises LakeError when the change log itself cannot be read.
    """
    landed = _landed(pipeline)
    names, slot, source_error = _source(pipeline, landed)
    flushed = slot.flushed_lsn if slot else None
    return PipelineStatus(
        pipeline=pipeline.name,
        lake=pipeline.lake.path,
        slot=slot,
        source_error=source_error,
        log=None if landed is None else _log_status(landed, flushed),
        tables=tuple(_table_status(pipeline, name, landed, flushed) for name in names),
    )


def _source(
    pipeline: Pipeline, landed: _Landed | None
) -> tuple[tuple[QualifiedName, ...], SlotHealth | None, CdcError | None]:
    names = configured_names(pipeline) or ()
    try:
        with connected(pipeline.source.dsn) as connection:
            names = names or followed_names(connection, pipeline)
            if landed is None and not slot_exists(connection, pipeline.source.slot):
                return names, None, None  # nothing was begun yet: that is no fault
            return names, slot_health(connection, pipeline.source.slot), None
    except (SourceError, SlotError) as error:
        return names, None, error


def _landed(pipeline: Pipeline) -> _Landed | None:
    markers = ChangeLog(pipeline.lake.change_log).markers()
    return _Landed(markers[-1], markers, latest_cut(pipeline.lake)) if markers else None


def _log_status(landed: _Landed, flushed: Lsn | None) -> LogStatus:
    end = landed.last.window.hi
    return LogStatus(landed.last.ordinal, end, _behind(end, flushed))


def _table_status(pipeline: Pipeline, name: QualifiedName, landed: _Landed | None, flushed: Lsn | None) -> TableStatus:
    if landed is None:
        return TableStatus(name)
    identity = landed.last.identity
    try:
        state = table_state(pipeline.lake, name, identity.system_identifier, identity.slot)
    except CdcError as error:
        return TableStatus(name, error=error)
    if state is None:
        return TableStatus(name)
    ordinal = applied_ordinal(state, landed.cut)
    pending = [marker for marker in landed.markers if marker.ordinal > ordinal]
    applied = next((marker.window.hi for marker in landed.markers if marker.ordinal == ordinal), None)
    applied_lsn = max(applied, state.snapshot_lsn) if applied else state.snapshot_lsn
    return TableStatus(
        name=name,
        snapshot_lsn=state.snapshot_lsn,
        applied_lsn=applied_lsn,
        behind_windows=len(pending),
        behind_changes=sum(_changes(marker, name) for marker in pending),
        behind_bytes=_behind(applied_lsn, flushed),
        delta_version=state.version,
    )


def applied_ordinal(state: TableState, cut: Cut | None) -> int:
    """The table's own watermark; the newest cut's when it has not changed since: idle tables get no commit."""
    entry = cut.table(state.name) if cut else None
    if cut and entry and entry.generation == state.generation and entry.version == state.version:
        return max(state.ordinal, cut.ordinal)
    return state.ordinal


def _changes(marker: WindowMarker, name: QualifiedName) -> int:
    return sum(
        counts.inserts + counts.updates + counts.deletes + counts.truncates
        for counts in marker.relations
        if (counts.nspname, counts.relname) == (name.nspname, name.relname)
    )


def _behind(lsn: Lsn, flushed: Lsn | None) -> int | None:
    return None if flushed is None else max(0, flushed - lsn)
