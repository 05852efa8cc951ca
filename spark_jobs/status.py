"""How far the slot, the change log and each table are. Needs no Spark, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cache, partial

from spark_jobs.capture.catalogue_look import certain_changes
from spark_jobs.capture.continuity import check_health
from spark_jobs.capture.lag import Lag, lag_behind, lag_since
from spark_jobs.capture.slot_findings import Finding, slot_findings
from spark_jobs.capture.slot_owner import require_own_slot
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import CdcError, GapError, LakeError, NeedsSnapshotError, SlotError, SourceError
from spark_jobs.lake.messages_state import MESSAGES_NAME, has_messages_table
from spark_jobs.lake.table_state import PartitionsRead, Strategy
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.options.table_mode import Mode
from spark_jobs.postgres.connection import connected
from spark_jobs.postgres.fingerprints import fingerprint_words, fingerprints
from spark_jobs.postgres.health import SlotHealth, find_slot_health
from spark_jobs.postgres.open_transactions import OpenTransaction
from spark_jobs.postgres.slot import find_slot, require_plugin
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.differing_columns import SAME_COLUMNS, DifferingColumns
from spark_jobs.snapshot.chunks.snapshot_progress import SnapshotProgress, snapshot_progress
from spark_jobs.tables.at_source import AtSource, matching_in_lake
from spark_jobs.tables.catalogue_changes import change_without_event, changed_without_event, is_of_earlier_chapter
from spark_jobs.tables.configured_otherwise import shows_another
from spark_jobs.tables.followed_tables import configured_names, watched_tables
from spark_jobs.tables.ledger import Ledger
from spark_jobs.tables.refused_changes import accepted_windows, refused_since
from spark_jobs.tables.stopped_tables import stopped_tables


@dataclass(frozen=True)
class LogStatus:
    """``landed_windows`` were landed so far, up to ``landed_end``. ``lag_bytes`` of WAL are not landed, and the log is
    ``lag_seconds`` late; None: not known."""

    landed_windows: int = field(metadata={"formerly": "windows"})
    landed_end: Lsn
    lag_bytes: int | None = field(metadata={"formerly": "behind_bytes"})
    lag_seconds: float | None = field(metadata={"formerly": "behind_seconds"})


@dataclass(frozen=True)
class TableStatus:
    """One table: it shows the source at ``applied_lsn``; all None before its snapshot.

    ``pending_windows`` are landed but not applied, with ``pending_changes`` of this table in them; ``lag_bytes`` is
    the WAL between it and the source. What was committed more than ``lag_seconds`` ago is in the table; None: not
    known. ``snapshot_reason``: why the snapshot was taken, empty if it was the first or was
    asked for. ``missing_operations``: those that its publications left out at that time; the lake does not see them.
    ``mode``: what the table keeps, which may differ from the present configuration. ``partitions``: those that were
    last read again since the snapshot, and why. ``strategy``: how our last commit was written; None for a snapshot.
    ``differing``: the columns in which it differs from the source on purpose. ``waits_for``: the open transaction
    before whose end the table cannot get the snapshot that it needs. ``snapshot_progress``: how much of a new snapshot
    is read, if that is read in chunks. ``unrepresentable``: by column, how many values were stored otherwise than the
    source had them, since the snapshot.
    """

    name: QualifiedName
    snapshot_lsn: Lsn | None = None
    applied_lsn: Lsn | None = None
    pending_windows: int | None = field(default=None, metadata={"formerly": "behind_windows"})
    pending_changes: int | None = field(default=None, metadata={"formerly": "behind_changes"})
    lag_bytes: int | None = field(default=None, metadata={"formerly": "behind_bytes"})
    lag_seconds: float | None = None
    delta_version: int | None = None
    error: CdcError | None = None
    snapshot_reason: str = ""
    missing_operations: tuple[str, ...] = ()
    mode: Mode = "mirror"
    partitions: PartitionsRead | None = None
    strategy: Strategy | None = None
    differing: DifferingColumns = SAME_COLUMNS
    waits_for: OpenTransaction | None = None
    snapshot_progress: SnapshotProgress | None = None
    unrepresentable: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class MessagesStatus:
    """The messages table: it has the messages up to ``applied_lsn``; all None before the first apply.

    ``pending_messages`` counts those of all prefixes in the ``pending_windows``.
    """

    applied_lsn: Lsn | None = None
    pending_windows: int | None = field(default=None, metadata={"formerly": "behind_windows"})
    pending_messages: int | None = field(default=None, metadata={"formerly": "behind_messages"})
    lag_bytes: int | None = field(default=None, metadata={"formerly": "behind_bytes"})
    delta_version: int | None = None
    error: CdcError | None = None


@dataclass(frozen=True)
class PipelineStatus:
    """``slot`` is None if it does not exist or the source cannot be queried; ``source_error`` then says why.

    ``messages`` is None if the pipeline keeps no messages table. ``findings``: values beyond the thresholds of
    ``health`` in the configuration; they are no errors.
    """

    pipeline: str
    lake: str
    slot: SlotHealth | None
    source_error: CdcError | None
    log: LogStatus | None
    tables: tuple[TableStatus, ...]
    messages: MessagesStatus | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def errors(self) -> tuple[CdcError, ...]:
        of_messages = self.messages.error if self.messages else None
        errors = (self.source_error, *(table.error for table in self.tables), of_messages)
        return tuple(error for error in errors if error is not None)


# a transaction that ends within this time hardly delays a snapshot
_SHORT = timedelta(seconds=2)


@dataclass(frozen=True)
class _Answers:
    """What lake and source answered: the tables that are followed, and the errors of single ones. ``ledger``: None if
    nothing was landed yet. ``markers`` are those of the landed windows, beginning with the earliest that is the last
    one applied to some table. ``progress``: of snapshots that are read in chunks."""

    names: tuple[QualifiedName, ...]
    ledger: Ledger | None
    markers: tuple[WindowMarker, ...]
    slot: SlotHealth | None = None
    trouble: Mapping[QualifiedName, CdcError] = field(default_factory=dict)
    error: CdcError | None = None
    progress: Mapping[QualifiedName, SnapshotProgress] = field(default_factory=dict)

    def waits_for(self, name: QualifiedName) -> OpenTransaction | None:
        """What a snapshot of the table would wait for now, if it is not about to end. Chunks wait for nothing."""
        oldest = self.slot.oldest_transaction if self.slot is not None and name not in self.progress else None
        return oldest if oldest is not None and (oldest.age is None or oldest.age > _SHORT) else None


@dataclass(frozen=True)
class _Late:
    """How far the source is, how late the change log is, and of a window, how long ago it was committed."""

    flushed: Lsn | None = None
    log_seconds: float | None = None
    since: Callable[[int], float | None] = lambda _: None

    def seconds_of(self, pending: Mapping[int, int]) -> float | None:
        """How late a table is, by the number of its changes in each window that is not applied."""
        first = next((ordinal for ordinal, changes in pending.items() if changes), None)
        return self.log_seconds if first is None or self.log_seconds is None else self.since(first)


def pipeline_status(pipeline: Pipeline) -> PipelineStatus:
    """How far everything is, according to source and lake. A source that cannot be reached, or a table that cannot be
    read, is an error in the result.

    Raises LakeError when the change log itself cannot be read.
    """
    answers = _ask(pipeline, Ledger.of(pipeline.lake))
    ledger = answers.ledger
    flushed = answers.slot.flushed_lsn if answers.slot else None
    read_again = pipeline.on_rewrite != "error"
    lag = lag_behind(pipeline, ledger.last, flushed) if ledger and flushed and not answers.error else None
    late = _Late(flushed, lag.seconds, cache(partial(lag_since, ledger.log))) if ledger and lag else _Late(flushed)
    return PipelineStatus(
        pipeline=pipeline.name,
        lake=pipeline.lake.path,
        slot=answers.slot,
        source_error=answers.error,
        log=None if ledger is None else _log_status(ledger, flushed, lag),
        tables=tuple(_table_status(name, late, answers, read_again=read_again) for name in answers.names),
        messages=_messages_status(ledger, flushed) if has_messages_table(pipeline) else None,
        findings=slot_findings(answers.slot, lag, pipeline.health) if answers.slot else (),
    )


def _ask(pipeline: Pipeline, ledger: Ledger | None) -> _Answers:
    """What the source answers; if it cannot be queried, what configuration and lake say."""
    names = configured_names(pipeline) or ()
    answers = _answers_of_lake(names, ledger)
    try:
        with connected(pipeline.source.dsn) as connection:
            at_source = AtSource(connection, pipeline).now()
            pipeline = at_source.pipeline
            if not names:
                names = at_source.followed_names()
                answers = _answers_of_lake(names, ledger)
            if answers.ledger is not None:
                answers = replace(answers, trouble=_trouble(at_source, answers, answers.ledger))
            elif find_slot(connection, pipeline.source.slot) is None:
                return answers  # nothing was begun yet: that is not an error
            health = find_slot_health(connection, pipeline.source.slot)
            if isinstance(health, SlotHealth):
                answers = replace(answers, slot=health)
                require_plugin(health, pipeline.source.plugin)
            if ledger is not None:
                check_health(pipeline, ledger.last, health)
            else:
                require_own_slot(at_source)
    except (SourceError, SlotError, GapError) as error:
        if not answers.names:
            answers = _answers_of_lake(configured_names(matching_in_lake(pipeline)) or (), ledger)
        return replace(answers, error=error)
    return answers


def _answers_of_lake(names: tuple[QualifiedName, ...], ledger: Ledger | None) -> _Answers:
    if ledger is None:
        return _Answers(names, None, ())
    ledger = ledger.opening(names)
    reached = min((state.ordinal for state in ledger.states.values()), default=ledger.last.ordinal)
    progress = snapshot_progress(ledger.lake, ledger.states)
    return _Answers(names, ledger, ledger.log.markers(reached - 1), progress=progress)


def _trouble(at_source: AtSource, answers: _Answers, ledger: Ledger) -> Mapping[QualifiedName, CdcError]:
    """Errors of tables that were followed until now, and of those that cannot begin."""
    stopped = stopped_tables(at_source, answers.names, ledger.found)
    return {**_changed(at_source, answers, ledger), **{table.name: table.error for table in stopped}}


def _changed(at_source: AtSource, answers: _Answers, ledger: Ledger) -> Mapping[QualifiedName, CdcError]:
    """Changes that cost the table a new snapshot: those that are landed, and those since the last window."""
    connection, pipeline = at_source.connection, at_source.pipeline
    trouble: dict[QualifiedName, CdcError] = {}
    watched = watched_tables(pipeline, tuple(ledger.found), ledger.last)
    look = ledger.last.catalogue
    words = pipeline.by_name(ledger.found, fingerprint_words(connection, watched)) if look else {}
    if look and any(
        state.generation.word != words.get(name, (0, state.generation.word))[1] for name, state in ledger.states.items()
    ):
        before = ledger.log.last_look(ledger.last)
        changes = certain_changes(before, fingerprints(connection, watched).values())
        for name, changed in pipeline.by_name(ledger.found, changes).items():
            state = ledger.states.get(name)
            if state is not None and state.generation.word != words[name][1]:
                if refused := refused_since(
                    name, (*changed.column_words, *changed.reasons), pipeline.schema_policy(name)
                ):
                    trouble[name] = refused
                elif changed.reasons:
                    trouble[name] = changed_without_event(name, changed.reasons, "since the last window")
    for name, state in ledger.states.items():
        pending = [marker for marker in answers.markers if marker.ordinal > state.ordinal]
        _, refused = accepted_windows(pending, state, pipeline.schema_policy(name))
        if error := shows_another(pipeline, state) or refused or change_without_event(pending, state):
            trouble[name] = error
    return trouble


def _log_status(ledger: Ledger, flushed: Lsn | None, lag: Lag | None) -> LogStatus:
    end = ledger.last.window.hi
    return LogStatus(ledger.last.ordinal, end, _behind(end, flushed), lag.seconds if lag else None)


def _table_status(name: QualifiedName, late: _Late, answers: _Answers, *, read_again: bool) -> TableStatus:
    ledger = answers.ledger
    state = ledger.found.get(name) if ledger else None
    if ledger is None or state is None:
        waits_for = answers.waits_for(name) if ledger is not None else None
        progress = answers.progress.get(name)
        return TableStatus(name, error=answers.trouble.get(name), waits_for=waits_for, snapshot_progress=progress)
    if isinstance(state, LakeError):
        return TableStatus(name, error=state)
    pending = [marker for marker in answers.markers if marker.ordinal > state.ordinal]
    applied = next((marker.window.hi for marker in answers.markers if marker.ordinal == state.ordinal), None)
    applied_lsn = max(applied, state.snapshot_lsn) if applied else state.snapshot_lsn
    if is_of_earlier_chapter(state, ledger.identity.chapter):
        late = _Late()  # the table's LSNs cannot be compared with this WAL
    changes = {marker.ordinal: _changes(marker, state.relation) for marker in pending}
    return TableStatus(
        name=name,
        snapshot_lsn=state.snapshot_lsn,
        applied_lsn=applied_lsn,
        pending_windows=len(pending),
        pending_changes=sum(changes.values()),
        lag_bytes=_behind(applied_lsn, late.flushed),
        lag_seconds=late.seconds_of(changes),
        delta_version=state.version,
        error=answers.trouble.get(name),
        snapshot_reason=state.cause.reason if state.cause else "",
        missing_operations=state.generation.missing_operations,
        mode=state.mode,
        partitions=state.partitions,
        strategy=state.strategy,
        differing=state.differing,
        waits_for=answers.waits_for(name)
        if read_again and isinstance(answers.trouble.get(name), NeedsSnapshotError)
        else None,
        snapshot_progress=answers.progress.get(name),
        unrepresentable=state.unrepresentable.counts,
    )


def _messages_status(ledger: Ledger | None, flushed: Lsn | None) -> MessagesStatus:
    if ledger is None:
        return MessagesStatus()
    try:
        state = ledger.state_of(MESSAGES_NAME)
    except CdcError as error:
        return MessagesStatus(error=error)
    if state is None:
        return MessagesStatus()
    markers = ledger.log.markers(state.ordinal - 1)
    pending = [marker for marker in markers if marker.ordinal > state.ordinal]
    applied = next((marker.window.hi for marker in markers if marker.ordinal == state.ordinal), None)
    return MessagesStatus(
        applied_lsn=applied,
        pending_windows=len(pending),
        pending_messages=sum(marker.logical_messages for marker in pending),
        lag_bytes=_behind(applied, flushed) if applied else None,
        delta_version=state.version,
    )


def _changes(marker: WindowMarker, relation: QualifiedName) -> int:
    return sum(counts.changes.total for counts in marker.counts_of(None, relation))


def _behind(lsn: Lsn, flushed: Lsn | None) -> int | None:
    return None if flushed is None else max(0, flushed - lsn)
