"""Where the slot, the change log and each table stand: read without Spark, and nothing is changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from spark_jobs.capture.catalogue_look import certain_changes
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import CdcError, LakeError, SlotError, SourceError
from spark_jobs.lake.cuts import Cut, latest_cut
from spark_jobs.lake.messages_state import MESSAGES_NAME, has_messages_table, messages_state
from spark_jobs.lake.table_state import TableState, table_states
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.postgres.connection import Connection, connected
from spark_jobs.postgres.fingerprints import fingerprint_words, fingerprints
from spark_jobs.postgres.health import SlotHealth, slot_health
from spark_jobs.postgres.privileges import slot_exists
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.tables.catalogue_changes import change_without_event, changed_without_event
from spark_jobs.tables.followed_tables import configured_names, followed_names, watched_tables
from spark_jobs.tables.standings import known_state
from spark_jobs.tables.stopped_tables import stopped_tables


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
    the WAL between it and the source. ``snapshot_reason``: why the snapshot was taken, empty where it was the first or
    was asked for.
    """

    name: QualifiedName
    snapshot_lsn: Lsn | None = None
    applied_lsn: Lsn | None = None
    behind_windows: int | None = None
    behind_changes: int | None = None
    behind_bytes: int | None = None
    delta_version: int | None = None
    error: CdcError | None = None
    snapshot_reason: str = ""


@dataclass(frozen=True)
class MessagesStatus:
    """The messages table: it has the messages up to ``applied_lsn``; all None before the first apply.

    ``behind_messages`` counts those of all prefixes in the ``behind_windows``.
    """

    applied_lsn: Lsn | None = None
    behind_windows: int | None = None
    behind_messages: int | None = None
    behind_bytes: int | None = None
    delta_version: int | None = None
    error: CdcError | None = None


@dataclass(frozen=True)
class PipelineStatus:
    """``slot`` is None when it is not there or cannot be asked; ``source_error`` then says why.

    ``messages`` is None where the pipeline keeps no messages table.
    """

    pipeline: str
    lake: str
    slot: SlotHealth | None
    source_error: CdcError | None
    log: LogStatus | None
    tables: tuple[TableStatus, ...]
    messages: MessagesStatus | None = None

    @property
    def errors(self) -> tuple[CdcError, ...]:
        told = self.messages.error if self.messages else None
        found = (self.source_error, *(table.error for table in self.tables), told)
        return tuple(error for error in found if error is not None)


_States = Mapping[QualifiedName, TableState | LakeError]


@dataclass(frozen=True)
class _Landed:
    """The log's markers, by ordinal, and the newest cut."""

    last: WindowMarker
    markers: tuple[WindowMarker, ...]
    cut: Cut | None


@dataclass(frozen=True)
class _Asked:
    """What the source answered: the tables that are followed, and what is wrong with single ones."""

    names: tuple[QualifiedName, ...]
    states: _States
    slot: SlotHealth | None = None
    trouble: Mapping[QualifiedName, CdcError] = field(default_factory=dict)
    error: CdcError | None = None


def pipeline_status(pipeline: Pipeline) -> PipelineStatus:
    """Ask both sides. A source that cannot be reached, or a table that cannot be read, is told in the result.

    Raises LakeError when the change log itself cannot be read.
    """
    landed = _landed(pipeline)
    asked = _ask(pipeline, landed)
    flushed = asked.slot.flushed_lsn if asked.slot else None
    return PipelineStatus(
        pipeline=pipeline.name,
        lake=pipeline.lake.path,
        slot=asked.slot,
        source_error=asked.error,
        log=None if landed is None else _log_status(landed, flushed),
        tables=tuple(_table_status(name, landed, flushed, asked) for name in asked.names),
        messages=_messages_status(pipeline, landed, flushed) if has_messages_table(pipeline) else None,
    )


def _ask(pipeline: Pipeline, landed: _Landed | None) -> _Asked:
    """Where the source cannot be asked, what the configuration and the lake tell."""
    names = configured_names(pipeline) or ()
    asked = _Asked(names, _states(pipeline, names, landed))
    try:
        with connected(pipeline.source.dsn) as connection:
            if not names:
                names = followed_names(connection, pipeline)
                asked = _Asked(names, _states(pipeline, names, landed))
            if landed is not None:
                asked = replace(asked, trouble=_trouble(connection, pipeline, asked, landed))
            elif not slot_exists(connection, pipeline.source.slot):
                return asked  # nothing was begun yet: that is no fault
            return replace(asked, slot=slot_health(connection, pipeline.source.slot))
    except (SourceError, SlotError) as error:
        return replace(asked, error=error)


def _states(pipeline: Pipeline, names: tuple[QualifiedName, ...], landed: _Landed | None) -> _States:
    return {} if landed is None else table_states(pipeline.lake, names, landed.last.identity)


def _trouble(
    connection: Connection, pipeline: Pipeline, asked: _Asked, landed: _Landed
) -> Mapping[QualifiedName, CdcError]:
    """Of tables that were followed until now."""
    stopped = stopped_tables(connection, pipeline, tuple(asked.states), asked.states)
    return {**_changed(connection, pipeline, asked, landed), **{table.name: table.error for table in stopped}}


def _changed(
    connection: Connection, pipeline: Pipeline, asked: _Asked, landed: _Landed
) -> Mapping[QualifiedName, CdcError]:
    """What was landed as changed, or has changed since, in a way that costs the table a new snapshot."""
    trouble: dict[QualifiedName, CdcError] = {}
    watched = watched_tables(pipeline, tuple(asked.states), landed.last)
    seen = landed.last.catalogue
    words = fingerprint_words(connection, watched) if seen else {}
    if seen and any(
        isinstance(s, TableState) and s.word != words.get(n, (0, s.word))[1] for n, s in asked.states.items()
    ):
        before = ChangeLog(pipeline.lake.change_log).fingerprints(seen.window)
        for name, reasons in certain_changes(before, fingerprints(connection, watched).values()).items():
            state = asked.states[name]
            if isinstance(state, TableState) and state.word != words[name][1]:
                trouble[name] = changed_without_event(name, reasons, "since the last window")
    for name, state in asked.states.items():
        if isinstance(state, TableState):
            pending = [marker for marker in landed.markers if marker.ordinal > known_state(state, landed.cut).ordinal]
            if error := change_without_event(pending, state):
                trouble[name] = error
    return trouble


def _landed(pipeline: Pipeline) -> _Landed | None:
    markers = ChangeLog(pipeline.lake.change_log).markers()
    return _Landed(markers[-1], markers, latest_cut(pipeline.lake)) if markers else None


def _log_status(landed: _Landed, flushed: Lsn | None) -> LogStatus:
    end = landed.last.window.hi
    return LogStatus(landed.last.ordinal, end, _behind(end, flushed))


def _table_status(name: QualifiedName, landed: _Landed | None, flushed: Lsn | None, asked: _Asked) -> TableStatus:
    state = asked.states.get(name)
    if landed is None or state is None:
        return TableStatus(name)
    if isinstance(state, LakeError):
        return TableStatus(name, error=state)
    ordinal = known_state(state, landed.cut).ordinal
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
        error=asked.trouble.get(name),
        snapshot_reason=state.cause.reason if state.cause else "",
    )


def _messages_status(pipeline: Pipeline, landed: _Landed | None, flushed: Lsn | None) -> MessagesStatus:
    if landed is None:
        return MessagesStatus()
    try:
        state = messages_state(pipeline, landed.last.identity)
    except CdcError as error:
        return MessagesStatus(error=error)
    if state is None:
        return MessagesStatus()
    known = landed.cut.table(MESSAGES_NAME) if landed.cut else None
    ordinal = landed.cut.ordinal if landed.cut and known and known.version == state.version else state.ordinal
    pending = [marker for marker in landed.markers if marker.ordinal > ordinal]
    applied = next((marker.window.hi for marker in landed.markers if marker.ordinal == ordinal), None)
    return MessagesStatus(
        applied_lsn=applied,
        behind_windows=len(pending),
        behind_messages=sum(marker.logical_messages for marker in pending),
        behind_bytes=_behind(applied, flushed) if applied else None,
        delta_version=state.version,
    )


def _changes(marker: WindowMarker, name: QualifiedName) -> int:
    return sum(
        counts.changes.total
        for counts in marker.relations
        if (counts.nspname, counts.relname) == (name.nspname, name.relname)
    )


def _behind(lsn: Lsn, flushed: Lsn | None) -> int | None:
    return None if flushed is None else max(0, flushed - lsn)
