"""``{name}_slot_lag``: the one that watches. It observes the slot, plans windows and asks for one run at a time.

A tick is one bounded statement at the source and a look at the change log's newest markers. No cursor is trusted with
progress: after any crash the next tick plans anew from what is landed and from the runs that the instance remembers.
"""

from __future__ import annotations

import time

import dagster as dg

from cdc_assets.blueprint import Blueprint
from cdc_assets.checks import health_evaluation, unreachable_evaluation
from cdc_assets.partitions import ADD_BATCH
from cdc_assets.run_planning import last_runs, plan_run, range_tags
from cdc_assets.slot_observation import Observation, observe
from spark_jobs.errors import CdcError

_INTERVAL_SECONDS = 30
# a quiet database is observed less often: each observation is an event that stays
_QUIET_SECONDS = 600


def slot_lag_sensor(
    blueprint: Blueprint, sync: dg.UnresolvedAssetJobDefinition, snapshot: dg.UnresolvedAssetJobDefinition
) -> dg.SensorDefinition:
    @dg.sensor(
        name=f"{blueprint.name}_slot_lag",
        jobs=[sync, snapshot],
        minimum_interval_seconds=_INTERVAL_SECONDS,
        description="Observes the slot's lag, adds LSN windows as partitions and requests one run over them.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        try:
            observation = observe(blueprint.pipeline)
            plan = plan_run(context.instance, blueprint, observation) if observation else None
        except CdcError as error:
            # on the check, where alerts look; the tick says it too
            return dg.SensorResult(asset_events=[unreachable_evaluation(blueprint, error)], skip_reason=str(error))
        ensure_pool_limit(context, blueprint)
        if observation is None or plan is None:
            return _first_snapshot(context, blueprint)
        events, cursor = _events(blueprint, observation, context.cursor)
        adds = [
            blueprint.partitions.build_add_request(list(plan.new_keys[start : start + ADD_BATCH]))
            for start in range(0, len(plan.new_keys), ADD_BATCH)
        ]
        requests = [dg.RunRequest(job_name=blueprint.sync_job, tags=range_tags(plan.request))] if plan.request else []
        return dg.SensorResult(
            run_requests=requests,
            skip_reason=plan.reason or None,
            dynamic_partitions_requests=adds,
            asset_events=events,
            cursor=cursor,
        )

    return sensor


def ensure_pool_limit(context: dg.SensorEvaluationContext, blueprint: Blueprint) -> None:
    """A pool without a limit of its own is unlimited the first time it is met: give it one, once."""
    storage = context.instance.event_log_storage
    if not storage.supports_global_concurrency_limits:
        return
    limits = {pool.name: pool for pool in storage.get_pool_limits()}
    if blueprint.pool not in limits or limits[blueprint.pool].from_default:
        storage.set_concurrency_slots(blueprint.pool, 1)
    elif limits[blueprint.pool].limit != 1:
        context.log.warning(f"pool {blueprint.pool} lets {limits[blueprint.pool].limit} runs in at once: set it to 1")


def _first_snapshot(context: dg.SensorEvaluationContext, blueprint: Blueprint) -> dg.SensorResult:
    """Nothing is there yet: the snapshot job makes publication, slot and tables."""
    runs = last_runs(context.instance, blueprint)
    if runs.active is not None:
        return dg.SensorResult(skip_reason=f"run {runs.active} is making slot and snapshots")
    if runs.failures:
        return dg.SensorResult(skip_reason=f"the first snapshot failed: mend it, then run {blueprint.snapshot_job}")
    return dg.SensorResult(run_requests=[dg.RunRequest(job_name=blueprint.snapshot_job)])


def _events(
    blueprint: Blueprint, observation: Observation, cursor: str | None
) -> tuple[list[dg.AssetObservation | dg.AssetCheckEvaluation], str]:
    """Observation and check, unless nothing has moved since the last ones. The cursor: both LSNs and the time."""
    standing = f"{observation.health.flushed_lsn}-{observation.landed_end}"
    seen, _, at = (cursor or "").partition(" ")
    if seen == standing and at and time.time() - float(at) < _QUIET_SECONDS:
        return [], str(cursor)
    events: list[dg.AssetObservation | dg.AssetCheckEvaluation] = [
        dg.AssetObservation(blueprint.change_log_key, metadata=observation.metadata()),
        health_evaluation(blueprint, observation.health),
    ]
    return events, f"{standing} {time.time():.0f}"
