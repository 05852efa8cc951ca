"""``[name, schema, table]``: a materialisation applies LSN windows to the Delta table.

One step, on one Spark session, handles all tables of the run. A table that must stop stops only itself: the others are
brought up to date and marked, then the step fails and names it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import dagster as dg

from cdc_assets.assets.checks import (
    schema_result,
    table_checks,
    unrepresentable_result,
    watermark_checks,
    watermark_result,
)
from cdc_assets.assets.messages import messages_events
from cdc_assets.assets.snapshots import snapshot_event
from cdc_assets.assets.table_metadata import (
    SourceTable,
    known_table_metadata,
    source_tables,
    table_metadata,
    window_metadata,
)
from cdc_assets.assets.window_events import (
    catch_up_events,
    done_before,
    landed_earlier,
    require_present_chapter,
)
from cdc_assets.blueprint import MESSAGES, SCHEMA_CHECK, UNREPRESENTABLE_CHECK, WATERMARK_CHECK, Blueprint
from cdc_assets.failures import description_of, failure_of, failures
from cdc_assets.partitions import windows_of
from cdc_assets.slot_observation import landed_chapters, markers_since
from cdc_assets.snapshot_observation import progress_of, reading
from cdc_assets.stopped_tables import StoppedTables
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.errors import CdcError, GapError, RefusedChangeError, SourceError
from spark_jobs.logicalrep.lsn import Window
from spark_jobs.qualified_name import QualifiedName

if TYPE_CHECKING:
    from spark_jobs.apply.apply import CatchUpReport
    from spark_jobs.apply.table_applied import TableApplied
    from spark_jobs.change_log.chapters import Chapters
    from spark_jobs.postgres.open_transactions import OpenTransaction
    from spark_jobs.repair.new_generations import NewGenerations
    from spark_jobs.run import Run
    from spark_jobs.snapshot.exporter import Exporter
    from spark_jobs.snapshot.table_waiting import TableWaiting


@dataclass(frozen=True)
class TableRun:
    """One step's work: apply ``windows``, in LSN order, to ``tables``, and to the messages table if it has a key."""

    blueprint: Blueprint
    windows: tuple[Window, ...]
    tables: Mapping[QualifiedName, dg.AssetKey]
    messages: dg.AssetKey | None = None


Execute: TypeAlias = Callable[[dg.AssetExecutionContext, TableRun], Iterator[Any]]


def table_assets(blueprint: Blueprint, execute: Execute) -> dg.AssetsDefinition:
    """All tables of the pipeline; any selection of them may be run."""

    messages = blueprint.specs.messages
    specs = [*blueprint.table_specs.values(), *([messages] if messages else [])]

    @dg.multi_asset(
        name=f"{blueprint.name}_tables",
        specs=[spec.replace_attributes(skippable=True) for spec in specs],
        check_specs=[*table_checks(blueprint)],
        can_subset=True,
        pool=blueprint.pool,
        op_tags=blueprint.op_tags,
        retry_policy=blueprint.retry_policy,
        backfill_policy=dg.BackfillPolicy.single_run(),
        required_resource_keys={blueprint.spark_resource},
    )
    def tables(context):  # type: ignore[no-untyped-def]  # Dagster refuses postponed annotations here
        if not context.selected_asset_keys:  # checks alone, which need no partition
            yield from watermark_checks(context, blueprint)
            return
        blueprint.note_run(context)
        selected = {
            table: spec.key for table, spec in blueprint.table_specs.items() if spec.key in context.selected_asset_keys
        }
        messages = blueprint.messages_key if blueprint.messages_key in context.selected_asset_keys else None
        yield from execute(context, TableRun(blueprint, windows_of(context), selected, messages))

    return tables


def materialise_tables(context: dg.AssetExecutionContext, run: TableRun) -> Iterator[Any]:
    """Bring the run's tables, and the messages, to the end of its last window, each from its own watermark. If the
    command has landed a window that extends beyond that end, they are brought to the end of that window.

    A table without a snapshot gets one first. Windows at or below a watermark are only marked as done; windows that are
    not landed are refused.
    """
    applied = _applied(context, run)
    in_source = source_tables(run.blueprint.pipeline, tuple(run.tables), context.log.warning)
    stopped = {str(name): error for name, error in applied.failed.items()}
    done = done_before(run.windows, run.windows[-1].hi, applied.chapters)
    messages = applied.report.messages
    if run.messages is not None and messages is not None:
        if messages.error is not None:
            stopped[MESSAGES] = messages.error
        else:  # messages go on from one chapter to the next
            catch_up_events(context, run.messages, (*landed_earlier(applied.chapters), *done))
            yield messages_events(context, run.messages, run.windows, applied.markers, messages)
    waiting = {table.name: table for table in applied.waiting}
    for table in waiting.values():
        yield from _waiting_events(context, run, table)
    if waiting and not applied.begun.goes_on and not _shows_something(run):  # a run without any result is no success
        stopped |= {str(name): applied.errors[name] for name in waiting}
    for outcome in applied.report.tables:
        if outcome.error is None:
            catch_up_events(context, run.tables[outcome.name], done)
            yield _table_events(context, run, applied, outcome, in_source.get(outcome.name))
        elif outcome.name not in waiting:
            stopped[str(outcome.name)] = outcome.error
    _note_stopped(context, run, stopped)
    yield from _stopped_events(
        context, run, {name: error for name, error in stopped.items() if name not in map(str, waiting)}
    )
    if stopped:
        raise failure_of(tuple(stopped.values()), run.blueprint.remedies)


@dataclass(frozen=True)
class _Applied:
    """What the engine has done for a run, in ``seconds``. ``markers``: those of the run's windows. ``begun``: the
    generations that were begun; ``failed``: tables that could not be prepared."""

    chapters: Chapters
    markers: tuple[WindowMarker, ...]
    report: CatchUpReport
    begun: NewGenerations
    failed: Mapping[QualifiedName, CdcError]
    waits_for: OpenTransaction | None
    seconds: float

    @property
    def errors(self) -> dict[QualifiedName, CdcError]:
        applied = {outcome.name: outcome.error for outcome in self.report.tables if outcome.error}
        return {**self.begun.errors, **applied}

    @property
    def waiting(self) -> tuple[TableWaiting, ...]:
        """The tables whose snapshot waits for an open transaction, or is read in part."""
        from spark_jobs.snapshot.table_waiting import tables_waiting

        return tables_waiting(self.errors, self.waits_for)


def _applied(context: dg.AssetExecutionContext, run: TableRun) -> _Applied:
    from spark_jobs.lake.messages_state import MESSAGES_NAME
    from spark_jobs.repair.repair import apply_and_repair
    from spark_jobs.snapshot.exporter import BRIEF, IN_TURNS, Exporter

    blueprint = run.blueprint
    started = time.monotonic()
    with (
        failures(blueprint.remedies),
        Exporter(blueprint.pipeline.source.dsn, IN_TURNS) as exporter,
        blueprint.run_of(context).guarded() as engine_run,
    ):
        chapters, markers = _landed(run)
        upto = next(marker.window.hi for marker in markers if marker.window.hi >= run.windows[-1].hi)
        missing = _begin_missing(context, run, engine_run, exporter)
        exporter.patience = BRIEF  # what waits for a snapshot from now on comes after the other tables
        report, again = apply_and_repair(
            engine_run,
            (*run.tables, *([MESSAGES_NAME] if run.messages is not None else [])),
            exporter=exporter,
            excluding={*missing.failed, *_left_out(context, run)},
            waiting=missing.begun.waiting,
            upto=upto,
        )
        begun = missing.begun.then(again)
        _log_begun(context, blueprint, begun, report.tables)
    seconds = time.monotonic() - started
    return _Applied(chapters, markers, report, begun, missing.failed, exporter.waits_for, seconds)


def _left_out(context: dg.AssetExecutionContext, run: TableRun) -> frozenset[QualifiedName]:
    """The stopped tables whose turn it is not. No cut waits for them."""
    names = StoppedTables.of_run(context.run.tags).names
    return frozenset(table for table in run.blueprint.table_specs if str(table) in names and table not in run.tables)


def _note_stopped(context: dg.AssetExecutionContext, run: TableRun, stopped: Collection[str]) -> None:
    """Record in the run's tag which tables are stopped now."""
    known = StoppedTables.of_run(context.run.tags)
    if known.tables or stopped:
        tried = {*map(str, run.tables), *([MESSAGES] if run.messages else [])}
        tables = known.after(context.run.run_id, tried, stopped, time.time())
        context.instance.add_run_tags(context.run.run_id, tables.tags)


def _shows_something(run: TableRun) -> bool:
    from spark_jobs.lake.table_state import has_delta_table

    return any(has_delta_table(run.blueprint.pipeline.lake, name) for name in run.tables)


def _landed(run: TableRun) -> tuple[Chapters, tuple[WindowMarker, ...]]:
    """The log's chapters, and the markers of the run's windows. Raises GapError if the change log does not reach their
    end, or a window is not of the present chapter."""
    chapters = landed_chapters(run.blueprint.pipeline)
    if chapters is not None:
        require_present_chapter(run.windows, chapters)
    markers = markers_since(run.blueprint.pipeline, run.windows[0].lo)
    landed_end = markers[-1].window.hi if markers else None
    last = run.windows[-1]
    if chapters is None or landed_end is None or landed_end < last.hi:
        raise GapError(
            f"the window {last} is not landed: the change log ends at {landed_end or run.windows[0].lo} or before",
            hint=f"materialise {run.blueprint.change_log_key.to_user_string()} for these windows first, or with them",
        )
    return chapters, markers


@dataclass(frozen=True)
class _Missing:
    """The generations that were ``begun`` for tables without a usable one; ``failed``: tables that are stopped."""

    begun: NewGenerations
    failed: Mapping[QualifiedName, CdcError]


def _begin_missing(context: dg.AssetExecutionContext, run: TableRun, engine_run: Run, exporter: Exporter) -> _Missing:
    """Take missing snapshots, and bring tables into the configured mode.

    If the source is down or the slot is lost, tables that already have a snapshot still get what is landed.
    """
    from spark_jobs.lake.table_state import has_delta_table
    from spark_jobs.prepare import prepare
    from spark_jobs.repair.new_generations import NewGenerations, begin_generations

    pipeline = run.blueprint.pipeline
    try:
        prepared = prepare(pipeline)
    except (SourceError, GapError) as error:
        if not all(has_delta_table(pipeline.lake, name) for name in run.tables):
            raise
        context.log.warning("%s; what is landed is still applied", error)
        return _Missing(NewGenerations(), {})
    failed = {table.name: table.error for table in prepared.stopped if table.name in run.tables}
    missing = {name: why for name, why in prepared.missing.items() if name in run.tables}
    if not missing:
        return _Missing(NewGenerations(), failed)
    context.log.info("beginning new generations of %s", ", ".join(map(str, missing)))
    begun = begin_generations(engine_run, missing, exporter)
    return _Missing(begun, failed | {name: why for name, why in begun.errors.items() if name not in begun.waiting})


def _log_begun(
    context: dg.AssetExecutionContext, blueprint: Blueprint, begun: NewGenerations, applied: Sequence[TableApplied]
) -> None:
    for changed in begun.modes:
        if changed.error is None:
            context.log.info("mode of %s: %s", changed.name, changed.what)
    for snapshot in begun.snapshots:
        if snapshot.error is not None:
            continue
        context.log_event(snapshot_event(blueprint, snapshot))
        if snapshot.reason:
            context.log.warning("%s; it was read again at %s", snapshot.reason, snapshot.lsn)
    for outcome in applied:
        if read := outcome.partitions:
            message = "%s: %s; only those rows were read again, %d at %s"
            context.log.warning(message, outcome.name, read.reason, read.rows, read.lsn)


def _waiting_events(
    context: dg.AssetExecutionContext, run: TableRun, table: TableWaiting
) -> Iterator[dg.AssetCheckResult]:
    """A table whose snapshot waits for an open transaction, or is read in part: its partitions are left for the next
    run."""
    context.log.log("INFO" if table.goes_on else "WARNING", str(table))
    key, transaction = run.tables[table.name], table.transaction
    age = transaction.age if transaction is not None else None
    with failures(run.blueprint.remedies):
        progress = progress_of(run.blueprint.pipeline.lake, table.name) if table.goes_on else None
    metadata: dict[str, str | int] = {
        "waits_because": table.why,
        **({} if progress is None else reading(progress)),
        **({} if transaction is None else {"waits_for": str(transaction)}),
        **({} if age is None else {"waits_for_seconds": int(age.total_seconds())}),
    }
    yield from _shown_at(context, key, str(table), dg.AssetCheckSeverity.WARN, metadata)


def _stopped_events(
    context: dg.AssetExecutionContext, run: TableRun, stopped: Mapping[str, CdcError]
) -> Iterator[dg.AssetCheckResult]:
    """Why a table is stopped, where one looks for it: the step's failure is on the run's page only, and the table's
    check would go on showing what an earlier run found."""
    from spark_jobs.tables.ledger import Ledger

    lake = run.blueprint.pipeline.lake
    keys = {
        **{str(table): key for table, key in run.tables.items()},
        **({MESSAGES: run.messages} if run.messages else {}),
    }
    for name, error in stopped.items():
        text = description_of(error, run.blueprint.remedies)
        check_keys = context.selected_asset_check_keys
        yield from _shown_at(context, keys[name], text, dg.AssetCheckSeverity.ERROR)
        if dg.AssetCheckKey(keys[name], UNREPRESENTABLE_CHECK) in check_keys:
            with failures(run.blueprint.remedies):
                state = Ledger.required(lake).state_of(QualifiedName.parse(name))
            yield unrepresentable_result(lake, state, keys[name])
        if dg.AssetCheckKey(keys[name], SCHEMA_CHECK) in check_keys:
            # evaluated in any case: Dagster shows as failed what a failed step has left out
            changed = text if isinstance(error, RefusedChangeError) else ""
            yield schema_result(keys[name], changed, dg.AssetCheckSeverity.ERROR)


def _shown_at(
    context: dg.AssetExecutionContext,
    key: dg.AssetKey,
    text: str,
    severity: dg.AssetCheckSeverity,
    metadata: Mapping[str, str | int] | None = None,
) -> Iterator[dg.AssetCheckResult]:
    """On the asset's page: an observation, and the table's check as failed. The messages have no check."""
    context.log_event(dg.AssetObservation(key, description=text, metadata=metadata))
    if dg.AssetCheckKey(key, WATERMARK_CHECK) in context.selected_asset_check_keys:
        yield dg.AssetCheckResult(
            asset_key=key,
            check_name=WATERMARK_CHECK,
            passed=False,
            severity=severity,
            description=text,
            metadata=metadata,
        )


def _table_events(
    context: dg.AssetExecutionContext,
    run: TableRun,
    applied: _Applied,
    outcome: TableApplied,
    in_source: SourceTable | None,
) -> dg.MaterializeResult[Any]:
    """The events of one table: the numbers of each window, the table after the run, and its checks."""
    from spark_jobs.tables.ledger import Ledger

    pipeline, key, upto = run.blueprint.pipeline, run.tables[outcome.name], run.windows[-1].hi
    with failures(run.blueprint.remedies):
        ledger = Ledger.required(pipeline.lake)
        state = ledger.state_of(outcome.name)
        watermark = watermark_result(ledger, state, pipeline.relation(outcome.name), key, upto)
    replaced, version = unrepresentable_result(pipeline.lake, state, key), None if state is None else state.version
    checks = [watermark, schema_result(key, _changed_by_ddl(outcome, applied.begun)), replaced]
    table = known_table_metadata(context.instance, key, version)
    if not table:  # otherwise the table has not changed, and need not be opened
        spark = run.blueprint.spark_of(context)
        table = table_metadata(spark, run.blueprint, outcome.name, in_source, version)
    for window in run.windows:
        # Dagster stores the events of a range in no order, so each has the metadata of the table as a whole
        context.add_asset_metadata(
            {**window_metadata(applied.markers, window, pipeline.relation(outcome.name)), **table}, key, window.key
        )
    context.add_asset_metadata(_run_metadata(outcome, applied), key, run.windows[-1].key)
    check_keys = context.selected_asset_check_keys
    return dg.MaterializeResult(
        asset_key=key,
        check_results=[check for check in checks if dg.AssetCheckKey(key, check.check_name or "") in check_keys],
    )


def _changed_by_ddl(outcome: TableApplied, begun: NewGenerations) -> str:
    """What was followed in place, and why the table was read again, if it was."""
    reasons = (snapshot.reason for snapshot in begun.snapshots if snapshot.name == outcome.name and snapshot.reason)
    return "; ".join((*outcome.columns, *reasons))


def _run_metadata(outcome: TableApplied, applied: _Applied) -> Mapping[str, Any]:
    """The numbers of the whole run, which applies its tables together. Only one window has them, so that plots do not
    repeat them."""
    snapshot = next((table for table in applied.begun.snapshots if table.name == outcome.name and table.reason), None)
    changed = next((table for table in applied.begun.modes if table.name == outcome.name), None)
    read, state = outcome.partitions, outcome.state
    metadata = {
        "outcome": outcome.outcome,
        "rows_written": outcome.rows_written,
        "run_seconds": round(applied.seconds, 1),
        "delta_version": outcome.delta_version,
        "engine": outcome.engine,
        "strategy": outcome.strategy,
        "snapshot_reason": snapshot and snapshot.reason,
        "snapshot_lsn": snapshot and str(snapshot.lsn),
        "mode_changed": changed and changed.what,
        "columns_changed": "; ".join(outcome.columns) or None,
        "partitions_read": read and read.reason,
        "partition_rows": read and read.rows,
        "unrepresentable": (state and sum(state.unrepresentable.counts.values())) or None,
    }
    return {name: value for name, value in metadata.items() if value is not None}
