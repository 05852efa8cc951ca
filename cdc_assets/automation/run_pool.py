"""The pool of a pipeline: one run at a time reads its slot or writes its tables."""

from __future__ import annotations

import dagster as dg

from cdc_assets.blueprint import Blueprint


def ensure_pool_limit(context: dg.SensorEvaluationContext | dg.ScheduleEvaluationContext, blueprint: Blueprint) -> None:
    """Give the pool its limit, once: Dagster treats a pool without a limit as unlimited when it first meets it."""
    storage = context.instance.event_log_storage
    if not storage.supports_global_concurrency_limits:
        return
    limits = {pool.name: pool for pool in storage.get_pool_limits()}
    if blueprint.pool not in limits or limits[blueprint.pool].from_default:
        storage.set_concurrency_slots(blueprint.pool, 1)
    elif limits[blueprint.pool].limit != 1 and blueprint.op.pool is None:  # users set the size of a pool of their own
        context.log.warning(f"pool {blueprint.pool} lets {limits[blueprint.pool].limit} runs in at once: set it to 1")
