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
from cdc_assets.slot_observation import Observation, health_metadata, landed_chapters, observed_health
from cdc_assets.stopped_tables import StoppedTables
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import CdcError
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.qualified_name import QualifiedName

if TYPE_CHECKING:
    from spark_jobs.capture.lag import Lag
    from spark_jobs.postgres.health import SlotHealth


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
        passed, severity, text = judged(blueprint, health, lag, stopped_now(context.instance, blueprint))
        metadata = health_metadata(health, lag)
        return dg.AssetCheckResult(passed=passed, severity=severity, description=text, metadata=metadata)

    return slot_health


def stopped_now(instance: dg.DagsterInstance, blueprint: Blueprint) -> StoppedTables:
    """The stopped tables, as the newest run of the sync job knows them."""
    of_sync = dg.RunsFilter(tags=blueprint.run_tags, job_name=blueprint.sync_job)
    newest = instance.get_runs(of_sync, limit=1)
    stopped = StoppedTables.of_run(newest[0].tags) if newest else StoppedTables()
    return stopped.followed(blueprint.followed_keys.keys())


def judged(
    blueprint: Blueprint, health: SlotHealth, lag: Lag | None, stopped: StoppedTables
) -> tuple[bool, dg.AssetCheckSeverity, str]:
    """Whether the slot is healthy and no table is stopped, the severity if not, and one line that says why."""
    from spark_jobs.capture.slot_findings import slot_findings

    findings = slot_findings(health, lag, blueprint.pipeline.health)
    texts = [*(for_dagster(finding.text, blueprint.remedies) for finding in findings), *map(str, stopped.tables)]
    if not texts:
        return True, dg.AssetCheckSeverity.WARN, f"slot {health.slot_name}: WAL {health.wal_status}"
    is_error = bool(findings) and findings[0].severity == "error"
    worst = dg.AssetCheckSeverity.ERROR if is_error else dg.AssetCheckSeverity.WARN
    return False, worst, "; ".join(texts)


def health_evaluation(
    blueprint: Blueprint, observation: Observation, stopped: StoppedTables
) -> dg.AssetCheckEvaluation:
    """The same result as an event of the sensor."""
    passed, severity, text = judged(blueprint, observation.health, observation.lag, stopped)
    return dg.AssetCheckEvaluation(
        asset_key=blueprint.change_log_key,
        check_name=SLOT_HEALTH_CHECK,
        passed=passed,
        severity=severity,
        description=text,
        metadata=observation.metadata(),
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


def unrepresentable_result(pipeline: Pipeline, name: QualifiedName, table: dg.AssetKey) -> dg.AssetCheckResult:
    """Read from the table's newest commit. Records may hold personal data, so only the columns are named here."""
    from spark_jobs.tables.ledger import Ledger

    ledger = Ledger.of(pipeline.lake)
    state = None if ledger is None else ledger.state_of(name)
    values = None if state is None or not state.unrepresentable else state.unrepresentable
    return dg.AssetCheckResult(
        asset_key=table,
        check_name=UNREPRESENTABLE_CHECK,
        passed=values is None,
        severity=dg.AssetCheckSeverity.WARN,
        description="every value fits" if values is None else values.words,
        metadata={} if values is None else {**values.counts, "records": pipeline.lake.unrepresentable},
    )


def watermark(pipeline: Pipeline, table: QualifiedName, upto: Lsn) -> tuple[int, int, int]:
    """Read from the lake: the ordinal of the window that the table shows, that of the last window that begins before
    ``upto``, and the number of the table's changes between the two; -1 if the table has no snapshot in this chapter.

    A table without changes keeps its old watermark, since such windows make no commit.
    """
    from spark_jobs.tables.catalogue_changes import is_of_earlier_chapter
    from spark_jobs.tables.ledger import Ledger

    ledger = Ledger.of(pipeline.lake)
    if ledger is None:
        return -1, -1, -1
    state, chapter = ledger.state_of(table), ledger.identity.chapter
    if state is not None and is_of_earlier_chapter(state, chapter):
        state = None  # it has no snapshot in this chapter, and LSNs of another one cannot be compared
    shown, relation = -1 if state is None else state.ordinal, pipeline.relation(table)
    between = [marker for marker in ledger.log.markers(max(shown, chapter - 1)) if marker.window.lo < upto]
    changes = sum(each.changes.total for marker in between for each in marker.relations if each.name == relation)
    return shown, between[-1].ordinal if between else shown, changes if state is not None else -1


def watermark_result(table: dg.AssetKey, shown: int, last: int, changes: int) -> dg.AssetCheckResult:
    """``shown``, ``last`` and ``changes``: see ``watermark``."""
    return dg.AssetCheckResult(
        asset_key=table,
        check_name=WATERMARK_CHECK,
        passed=changes == 0,
        description=f"the table shows window {shown}; {max(changes, 0)} changes up to window {last} are missing",
        metadata={"window_shown": shown, "last_window": last, "changes_missing": changes},
    )


def watermark_checks(context: dg.AssetExecutionContext, blueprint: Blueprint) -> Iterator[dg.AssetCheckResult]:
    """The selected checks, without a run of windows: what was marked before must be in the tables."""
    chapters = landed_chapters(blueprint.pipeline)
    for table, spec in blueprint.table_specs.items():
        if dg.AssetCheckKey(spec.key, UNREPRESENTABLE_CHECK) in context.selected_asset_check_keys:
            with failures(blueprint.remedies):
                yield unrepresentable_result(blueprint.pipeline, table, spec.key)
        if dg.AssetCheckKey(spec.key, WATERMARK_CHECK) in context.selected_asset_check_keys:
            marked = well_formed(context.instance.get_materialized_partitions(spec.key))
            present = [window for window in marked if chapters is not None and chapters.present.holds(window)]
            upto = max((window.hi for window in present), default=Lsn(0))
            with failures(blueprint.remedies):
                result = watermark_result(spec.key, *watermark(blueprint.pipeline, table, upto))
            yield result
