"""``{name}_slot_lag`` observes the slot, plans windows and requests one run at a time.

A tick is one bounded statement at the source and a look at the change log's newest markers. Progress does not depend on
a cursor: after any crash the next tick plans again from what is landed and from the runs that the instance records.
"""

from __future__ import annotations

import time

import dagster as dg

from cdc_assets.assets.calendars import completed
from cdc_assets.assets.checks import health_evaluation, unreachable_evaluation
from cdc_assets.automation.run_planning import ensure_pool_limit, last_runs, plan_run, reason_to_wait, run_request
from cdc_assets.blueprint import Blueprint
from cdc_assets.failures import failure_of, for_dagster
from cdc_assets.partitions import ADD_BATCH
from cdc_assets.slot_observation import Observation, health_metadata, observe
from cdc_assets.stopped_tables import StoppedTables
from spark_jobs.errors import BreakError, CdcError

# while the database is quiet or down, fewer events are written: Dagster keeps every one
_QUIET_SECONDS = 600


def slot_lag_sensor(
    blueprint: Blueprint, seconds: int, sync: dg.UnresolvedAssetJobDefinition, snapshot: dg.UnresolvedAssetJobDefinition
) -> dg.SensorDefinition:
    """``seconds``: the time between two looks, at least."""
    running = blueprint.automation.runs

    @dg.sensor(
        name=blueprint.sensor,
        jobs=[sync, snapshot],
        minimum_interval_seconds=seconds,
        default_status=dg.DefaultSensorStatus.RUNNING if running else dg.DefaultSensorStatus.STOPPED,
        description="Observes the slot's lag, adds LSN windows as partitions and requests one run over them. Nothing"
        " else has to be turned on: its first tick requests the snapshots.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        ensure_pool_limit(context, blueprint)
        try:
            observation = observe(blueprint.pipeline)
            plan = plan_run(context.instance, blueprint, observation) if observation else None
            ended = completed(context.instance, blueprint, observation.settled) if observation else []
        except CdcError as error:
            return _failed(context, blueprint, error)
        if observation is None or plan is None:
            return _first_snapshot(context, blueprint)
        for table in plan.stopped.tables:
            context.log.warning(str(table))
        events, cursor = _events(blueprint, observation, plan.stopped, context.cursor)
        adds = [
            blueprint.partitions.build_add_request(list(plan.new_keys[start : start + ADD_BATCH]))
            for start in range(0, len(plan.new_keys), ADD_BATCH)
        ]
        request = run_request(blueprint, plan)
        return dg.SensorResult(
            run_requests=[request] if request else [],
            skip_reason=plan.reason or None,
            dynamic_partitions_requests=adds,
            asset_events=[*events, *ended],
            cursor=cursor,
        )

    return sensor


def _first_snapshot(context: dg.SensorEvaluationContext, blueprint: Blueprint) -> dg.SensorResult:
    """Nothing exists yet: request the snapshot job, which creates publication, slot and tables."""
    reason = reason_to_wait(last_runs(context.instance, blueprint))
    if reason:
        return dg.SensorResult(skip_reason=f"slot and snapshots must be created first: {reason}")
    return dg.SensorResult(run_requests=[dg.RunRequest(job_name=blueprint.snapshot_job)])


def _failed(context: dg.SensorEvaluationContext, blueprint: Blueprint, error: CdcError) -> dg.SensorResult:
    """Report the error as the check's result, where alerts look, and as the tick's skip reason. A break does not pass
    on its own, so the tick fails."""
    evaluation = unreachable_evaluation(blueprint, error)
    if isinstance(error, BreakError):
        # a tick that fails stores neither events nor a cursor
        if not _evaluated_lately(context.instance, evaluation):
            context.instance.report_runless_asset_event(evaluation)
        raise failure_of([error], blueprint.remedies) from error
    shown, message = type(error).__name__, for_dagster(error.lines, blueprint.remedies)
    if _shown_lately(shown, context.cursor):
        return dg.SensorResult(skip_reason=message, cursor=context.cursor)
    return dg.SensorResult(skip_reason=message, asset_events=[evaluation], cursor=_cursor(shown))


def _evaluated_lately(instance: dg.DagsterInstance, evaluation: dg.AssetCheckEvaluation) -> bool:
    """Whether the check's newest evaluation says the same, and is recent."""
    record = instance.get_latest_asset_check_evaluation_record(evaluation.asset_check_key)
    if record is None or time.time() - record.create_timestamp > _QUIET_SECONDS:
        return False
    return record.evaluation is not None and record.evaluation.description == evaluation.description


def _events(
    blueprint: Blueprint, observation: Observation, stopped: StoppedTables, cursor: str | None
) -> tuple[list[dg.AssetObservation | dg.AssetCheckEvaluation], str]:
    """Observation and check, unless nothing has moved since the last ones."""
    health = observation.health
    names = ",".join(sorted(stopped.names))
    shown = f"{health.flushed_lsn}-{observation.landed_end}-{health.wal_status}-{names}"
    if _shown_lately(shown, cursor):
        return [], str(cursor)
    events: list[dg.AssetObservation | dg.AssetCheckEvaluation] = [
        dg.AssetObservation(blueprint.change_log_key, metadata=health_metadata(health, observation.lag)),
        health_evaluation(blueprint, health, observation.lag, stopped),
    ]
    return events, _cursor(shown)


def _cursor(shown: str) -> str:
    """What the last events show, and when: the slot's state and the stopped tables, or the kind of error. Any change is
    shown at once."""
    return f"{shown} {time.time():.0f}"


def _shown_lately(shown: str, cursor: str | None) -> bool:
    """Whether the last events show the same, and are recent."""
    last, _, at = (cursor or "").rpartition(" ")
    return last == shown and bool(at) and time.time() - float(at) < _QUIET_SECONDS
