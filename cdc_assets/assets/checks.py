"""Asset checks: the slot's health on the change log, and on each table that it shows what is marked as applied.

A check records an invariant; an operation that would violate it raises before anything is committed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import dagster as dg

from cdc_assets.blueprint import SCHEMA_CHECK, SLOT_HEALTH_CHECK, UNREPRESENTABLE_CHECK, WATERMARK_CHECK, Blueprint
from cdc_assets.failures import description_of, failures, for_dagster
from cdc_assets.partitions import well_formed
from cdc_assets.slot_observation import health_metadata, landed_chapters, observed_health
from cdc_assets.stopped_tables import StoppedTables
from spark_jobs.configuration import Lake
from spark_jobs.errors import CdcError
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.qualified_name import QualifiedName

if TYPE_CHECKING:
    from spark_jobs.capture.lag import Lag
    from spark_jobs.lake.table_state import TableState
    from spark_jobs.postgres.health import SlotHealth
    from spark_jobs.tables.ledger import Ledger


def slot_health_check(blueprint: Blueprint) -> dg.AssetChecksDefinition:
    """The slot exists, and the server retains the WAL that it needs. The sensor evaluates it too."""

    @dg.asset_check(
        asset=blueprint.change_log_key,
        name=SLOT_HEALTH_CHECK,
        op_tags=blueprint.op.tags,
        description="The slot exists, the server retains the WAL that it needs, no threshold of `health` is crossed.",
    )
    def slot_health(context):  # type: ignore[no-untyped-def]  # Dagster refuses postponed annotations here
        with failures(blueprint.remedies):
            health, lag = observed_health(blueprint.pipeline)
        found = health_evaluation(blueprint, health, lag, stopped_now(context.instance, blueprint))
        return dg.AssetCheckResult(
            passed=found.passed, severity=found.severity, description=found.description, metadata=found.metadata
        )

    return slot_health


def stopped_now(instance: dg.DagsterInstance, blueprint: Blueprint) -> StoppedTables:
    """The stopped tables, as the newest run of the sync job knows them."""
    of_sync = dg.RunsFilter(tags=blueprint.run_tags, job_name=blueprint.sync_job)
    newest = instance.get_runs(of_sync, limit=1)
    stopped = StoppedTables.of_run(newest[0].tags) if newest else StoppedTables()
    return stopped.followed(blueprint.followed_keys.keys())


def health_evaluation(
    blueprint: Blueprint, health: SlotHealth, lag: Lag | None, stopped: StoppedTables
) -> dg.AssetCheckEvaluation:
    """Whether the slot is healthy and no table is stopped, the severity if not, and one line that says why; as an event
    of the sensor."""
    from spark_jobs.capture.slot_findings import slot_findings

    findings = slot_findings(health, lag, blueprint.pipeline.health)
    texts = [*(for_dagster(finding.text, blueprint.remedies) for finding in findings), *map(str, stopped.tables)]
    is_error = bool(findings) and findings[0].severity == "error"
    return dg.AssetCheckEvaluation(
        asset_key=blueprint.change_log_key,
        check_name=SLOT_HEALTH_CHECK,
        passed=not texts,
        severity=dg.AssetCheckSeverity.ERROR if is_error else dg.AssetCheckSeverity.WARN,
        description="; ".join(texts) or f"slot {health.slot_name}: WAL {health.wal_status}",
        metadata=health_metadata(health, lag),
    )


def unreachable_evaluation(blueprint: Blueprint, error: CdcError) -> dg.AssetCheckEvaluation:
    """The source could not be queried, or refused the query."""
    return dg.AssetCheckEvaluation(
        asset_key=blueprint.change_log_key,
        check_name=SLOT_HEALTH_CHECK,
        passed=False,
        severity=dg.AssetCheckSeverity.ERROR,
        description=description_of(error, blueprint.remedies),
    )


# what the checks of a table say when they pass
_DESCRIPTIONS = {
    WATERMARK_CHECK: "The Delta table shows the source at the end of the last window that is marked as applied.",
    SCHEMA_CHECK: "No DDL at the source changed the table's columns, or had it read again, in the last run.",
    UNREPRESENTABLE_CHECK: "Since the table's snapshot, every value was stored as the source had it.",
}


def table_checks(blueprint: Blueprint) -> Iterator[dg.AssetCheckSpec]:
    for table, spec in blueprint.table_specs.items():
        for name, description in _DESCRIPTIONS.items():
            if name != UNREPRESENTABLE_CHECK or blueprint.pipeline.may_replace_values(table):
                yield dg.AssetCheckSpec(name, asset=spec.key, description=description)


def schema_result(
    table: dg.AssetKey, changed: str, severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.WARN
) -> dg.AssetCheckResult:
    """``changed``: what DDL did to the table; empty if there was none."""
    return dg.AssetCheckResult(
        asset_key=table,
        check_name=SCHEMA_CHECK,
        passed=not changed,
        severity=severity,
        description=changed or "no column was changed",
        metadata={"changed": changed} if changed else {},
    )


def unrepresentable_result(lake: Lake, state: TableState | None, table: dg.AssetKey) -> dg.AssetCheckResult:
    """``state``: None without a snapshot. Records may hold personal data, so only the columns are named."""
    values = None if state is None or not state.unrepresentable else state.unrepresentable
    return dg.AssetCheckResult(
        asset_key=table,
        check_name=UNREPRESENTABLE_CHECK,
        passed=values is None,
        severity=dg.AssetCheckSeverity.WARN,
        description="every value fits" if values is None else values.words,
        metadata={} if values is None else {**values.counts, "records": lake.unrepresentable},
    )


def watermark_result(
    ledger: Ledger | None, state: TableState | None, relation: QualifiedName, table: dg.AssetKey, upto: Lsn
) -> dg.AssetCheckResult:
    """Whether the table, in this ``state``, lacks changes of ``relation`` in windows that begin before ``upto``; all
    numbers are -1 for a table without a snapshot in this chapter. ``ledger`` is None without a change log.

    A table without changes keeps its old watermark, since such windows make no commit.
    """
    from spark_jobs.tables.catalogue_changes import is_of_earlier_chapter

    shown = last = changes = -1
    if ledger is not None:
        chapter = ledger.identity.chapter
        # LSNs of another chapter cannot be compared
        has_snapshot = state is not None and not is_of_earlier_chapter(state, chapter)
        shown = state.ordinal if state is not None and has_snapshot else -1
        between = [marker for marker in ledger.log.markers(max(shown, chapter - 1)) if marker.window.lo < upto]
        last = between[-1].ordinal if between else shown
        counts = (each for marker in between for each in marker.relations if each.name == relation)
        changes = sum(each.changes.total for each in counts) if has_snapshot else -1
    return dg.AssetCheckResult(
        asset_key=table,
        check_name=WATERMARK_CHECK,
        passed=changes == 0,
        description=f"the table shows window {shown}; {max(changes, 0)} changes up to window {last} are missing",
        metadata={"window_shown": shown, "last_window": last, "changes_missing": changes},
    )


def watermark_checks(context: dg.AssetExecutionContext, blueprint: Blueprint) -> Iterator[dg.AssetCheckResult]:
    """The selected checks, without a run of windows: what was marked before must be in the tables."""
    from spark_jobs.tables.ledger import Ledger

    pipeline, selected = blueprint.pipeline, context.selected_asset_check_keys
    chapters, ledger = landed_chapters(pipeline), Ledger.of(pipeline.lake)
    for table, spec in blueprint.table_specs.items():
        names = [name for name in _DESCRIPTIONS if dg.AssetCheckKey(spec.key, name) in selected]
        if not names:
            continue
        with failures(blueprint.remedies):
            state = None if ledger is None else ledger.state_of(table)
        if UNREPRESENTABLE_CHECK in names:
            yield unrepresentable_result(pipeline.lake, state, spec.key)
        if WATERMARK_CHECK in names:
            marked = well_formed(context.instance.get_materialized_partitions(spec.key))
            present = [window for window in marked if chapters is not None and chapters.present.holds(window)]
            upto = max((window.hi for window in present), default=Lsn(0))
            with failures(blueprint.remedies):
                result = watermark_result(ledger, state, pipeline.relation(table), spec.key, upto)
            yield result
