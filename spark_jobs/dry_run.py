"""What ``sync`` or ``recover`` would do now, without doing it: nothing is created, read into the lake, or moved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from spark_jobs.capture.catalogue_look import certain_changes
from spark_jobs.capture.continuity import nothing_to_recover
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import BreakError, CdcError, NeedsSnapshotError, RefusedChangeError
from spark_jobs.postgres.connection import Connection, connected
from spark_jobs.postgres.fingerprints import fingerprints
from spark_jobs.postgres.slot import find_slot, require_plugin
from spark_jobs.postgres.table_sizes import TableSize, read_pace, table_sizes
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.fingerprint_differences import Differences, kind_of_change
from spark_jobs.status import PipelineStatus, pipeline_status
from spark_jobs.tables.at_source import AtSource
from spark_jobs.tables.configured_otherwise import BegunGenerations
from spark_jobs.tables.followed_tables import watched_tables
from spark_jobs.tables.ledger import Ledger
from spark_jobs.tables.masked_columns import mask_words
from spark_jobs.tables.stopped_tables import TableStopped, all_stopped, stopped_tables

_FIRST = "it has no snapshot yet"


@dataclass(frozen=True)
class SnapshotToTake:
    """A table that would be read from the source, or only its partitions that changed. ``rows`` and ``bytes`` are those
    of the source's statistics; ``seconds``: to read it, at the pace that was measured. None: not known."""

    name: QualifiedName
    reason: str
    bytes: int | None
    rows: int | None
    seconds: float | None


@dataclass(frozen=True)
class ColumnsToFollow:
    """DDL that the table follows in place, with the next row that has it."""

    name: QualifiedName
    changes: tuple[str, ...]


@dataclass(frozen=True)
class DryRun:
    """``broken``: why the slot no longer continues the change log; empty if it does. ``creates``: what is missing in
    source and lake. ``lag_bytes`` of WAL are to be captured, and the server decodes ``restart_bytes`` for them.
    ``pending_changes`` are captured but not applied. ``stopped`` tables would not be written.
    """

    broken: str
    creates: tuple[str, ...]
    snapshots: tuple[SnapshotToTake, ...]
    columns: tuple[ColumnsToFollow, ...]
    lag_bytes: int | None
    restart_bytes: int | None
    pending_changes: int
    stopped: tuple[TableStopped, ...]

    @property
    def errors(self) -> tuple[CdcError, ...]:
        return tuple(table.error for table in self.stopped)


def plan_sync(pipeline: Pipeline) -> DryRun:
    """What ``sync`` would do now. Raises what ``sync`` raises before it begins; a BreakError too."""
    status = pipeline_status(pipeline)
    if status.source_error is not None:
        raise status.source_error
    return _plan(pipeline, status)


def plan_recover(pipeline: Pipeline) -> DryRun:
    """What ``recover`` would do now. Raises what it raises before it begins.

    A slot whose next window cannot be decoded is not noticed: only reading it shows that.
    """
    if Ledger.of(pipeline.lake) is None:
        raise nothing_to_recover(pipeline)
    status = pipeline_status(pipeline)
    if status.source_error is None or isinstance(status.source_error, BreakError):
        return _plan(pipeline, status)
    raise status.source_error


def _plan(pipeline: Pipeline, status: PipelineStatus) -> DryRun:
    broken = status.source_error.what if status.source_error is not None else ""
    ledger = Ledger.of(pipeline.lake)
    with connected(pipeline.source.dsn) as connection:
        at_source = AtSource(connection, pipeline).now()
        pipeline, names = at_source.pipeline, at_source.followed_names()
        ledger = ledger and ledger.opening(names)
        found = stopped_tables(at_source, names, ledger.found if ledger else {})
        stopped = {table.name: table.error for table in found}
        if stopped and len(stopped) == len(names) and ledger is None:
            raise all_stopped([TableStopped(*table) for table in stopped.items()])
        failed = {table.name: table.error for table in status.tables if table.error is not None}
        stopped |= {name: error for name, error in failed.items() if isinstance(error, RefusedChangeError)}
        changes = {} if ledger is None or broken else _changes(at_source, ledger, names)
        going_on = [name for name in names if name not in stopped]
        reasons = dict.fromkeys(going_on, broken) if broken else {}
        reasons = reasons or _reasons(at_source, ledger, going_on) | _changed(pipeline, status)
        reasons = {name: why for name, why in reasons.items() if name not in stopped}
        sizes = pipeline.by_name(reasons, table_sizes(connection, pipeline.relations(reasons)))
        pace = _pace(connection, sizes)
        creates = tuple(_creates(at_source, ledger, going_on, broken=bool(broken)))
    stopped |= {name: error for name, error in failed.items() if name in going_on and name not in reasons}
    return DryRun(
        broken,
        creates,
        tuple(_to_take(pipeline, name, reason, sizes.get(name), pace) for name, reason in reasons.items()),
        tuple(_to_follow(pipeline, name, found) for name, found in changes.items() if name not in {*reasons, *stopped}),
        lag_bytes=status.log.lag_bytes if status.log else None,
        restart_bytes=status.slot.restart_bytes if status.slot else None,
        pending_changes=sum(table.pending_changes or 0 for table in status.tables),
        stopped=tuple(TableStopped(*table) for table in stopped.items()),
    )


def _to_follow(pipeline: Pipeline, name: QualifiedName, changes: Differences) -> ColumnsToFollow:
    policy = pipeline.schema_policy(name)
    notes = {"add": " (ignored)" if policy.add == "ignore" else "", "drop": " (kept)" if policy.drop == "keep" else ""}
    return ColumnsToFollow(name, tuple(f"{what}{notes.get(kind_of_change(what), '')}" for what in changes.column_words))


def _reasons(at_source: AtSource, ledger: Ledger | None, names: Sequence[QualifiedName]) -> dict[QualifiedName, str]:
    """The tables that begin a new generation, as ``prepare`` finds them."""
    pipeline = at_source.pipeline
    if ledger is None:
        return {name: _first(pipeline, name) for name in names}
    begun = BegunGenerations(pipeline, ledger, mask_words(at_source))
    return {name: _reason(begun, name) for name in names if begun.needs_another(name)}


def _reason(begun: BegunGenerations, name: QualifiedName) -> str:
    state, form = begun.ledger.states.get(name), begun.pipeline.table(name).form
    if state is None:
        return _first(begun.pipeline, name)
    if why := begun.why_from_source(name):
        return why
    if state.mode != form.mode:
        return (
            f"its mode was {state.mode} and is {form}: it is built from the change log if that reaches back far enough"
        )
    if state.generation.form != form:
        return f"it was kept as {state.generation.form} and is {form}: it is built from its own rows"
    return "its snapshot is of an earlier chapter of the change log"


def _first(pipeline: Pipeline, name: QualifiedName) -> str:
    adopt = pipeline.table(name).adopt
    return _FIRST if adopt is None else f"{_FIRST}, and adopts the rows of {adopt.path} that are equal"


def _changed(pipeline: Pipeline, status: PipelineStatus) -> dict[QualifiedName, str]:
    """The tables that are read again because they changed."""
    if pipeline.on_rewrite == "error":
        return {}
    return {table.name: table.error.what for table in status.tables if isinstance(table.error, NeedsSnapshotError)}


def _pace(connection: Connection, sizes: Mapping[QualifiedName, TableSize]) -> float | None:
    largest = max(sizes.values(), key=lambda size: size.bytes, default=None)
    return read_pace(connection, largest.largest_part) if largest is not None else None


def _to_take(
    pipeline: Pipeline, name: QualifiedName, reason: str, size: TableSize | None, pace: float | None
) -> SnapshotToTake:
    if pipeline.table(name).begins_empty:
        return SnapshotToTake(name, f"{reason}; it begins empty", 0, 0, 0)
    if size is None:
        return SnapshotToTake(name, reason, None, None, None)
    return SnapshotToTake(name, reason, size.bytes, size.rows, size.bytes / pace if pace else None)


def _changes(at_source: AtSource, ledger: Ledger, names: Sequence[QualifiedName]) -> dict[QualifiedName, Differences]:
    """What the catalogue shows since the last window."""
    now = fingerprints(at_source.connection, watched_tables(at_source.pipeline, names, ledger.last)).values()
    return at_source.pipeline.by_name(names, certain_changes(ledger.log.last_look(ledger.last), now))


def _creates(
    at_source: AtSource, ledger: Ledger | None, names: Sequence[QualifiedName], *, broken: bool
) -> Iterator[str]:
    pipeline, source, publication = at_source.pipeline, at_source.source, at_source.publication
    relations = pipeline.relations(names)
    if source.has_publications:
        if publication is None:
            yield f"publication {', '.join(source.publications)} for {len(relations):,} tables"
        elif publication.ours and pipeline.alters_publication:
            yield from (
                f"{name} in publication {publication.name}" for name in relations if not publication.publishes(name)
            )
    if (slot := find_slot(at_source.connection, source.slot)) is None:
        yield f"slot {source.slot}"
    else:
        require_plugin(slot, source.plugin)
    if ledger is None:
        yield f"change log {pipeline.lake.change_log}"
    elif broken:
        yield f"a new chapter of the change log, from window {ledger.last.ordinal + 1} on"
