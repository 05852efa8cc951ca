"""Which partitions to add, and whether to request a run now: shared by sensor and schedule.

The instance's own records are the only state. A run takes every window after the last run's. What a failed run left
undone, the next one does, because a table always starts from its own watermark.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import dagster as dg

from cdc_assets.automation.range_planning import PartitionState, plan_range
from cdc_assets.blueprint import Blueprint
from cdc_assets.partitions import well_formed
from cdc_assets.slot_observation import Observation, markers_since
from spark_jobs.logicalrep.lsn import Lsn

RANGE_START_TAG = "dagster/asset_partition_range_start"
RANGE_END_TAG = "dagster/asset_partition_range_end"
_ACTIVE = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
_FAILED = (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
_FIRST_WAIT_SECONDS = 30.0
_LONGEST_WAIT_SECONDS = 300.0
_FAILURES_COUNTED = 8


@dataclass(frozen=True)
class RunPlan:
    """``request``: the range to run, and ``new_keys`` to add for it, in LSN order; or None, with the ``reason``."""

    new_keys: tuple[str, ...]
    request: tuple[str, str] | None
    reason: str = ""


@dataclass(frozen=True)
class LastRuns:
    """The instance's records of this pipeline's runs. ``taken``: the end of the last range that was requested."""

    active: str | None
    failures: int
    seconds_since_failure: float
    taken: Lsn


def range_tags(key_range: tuple[str, str]) -> dict[str, str]:
    """Request one run over a range of partitions. Dagster has no typed way yet (dagster-io/dagster, PR 34096)."""
    return {RANGE_START_TAG: key_range[0], RANGE_END_TAG: key_range[1]}


def plan_run(instance: dg.DagsterInstance, blueprint: Blueprint, observation: Observation) -> RunPlan:
    """Plan one run over the windows that were not requested yet, oldest first, with keys for those that have none.

    Keys are added only with a run: while one is in progress, or waits after a failure, the next window simply grows.
    """
    planned = observation.planned()  # raises if there is a gap, whatever the runs do
    runs = last_runs(instance, blueprint)
    keys = instance.get_dynamic_partitions(f"{blueprint.name}_lsn")
    state = PartitionState(keys, observation.landed_end, observation.health.flushed_lsn, runs.taken)
    reason = reason_to_wait(runs)
    if not reason:
        landed = [marker.window for marker in markers_since(blueprint.pipeline, state.keyed_end)]
        most = blueprint.pipeline.windows.max_per_run
        plan = plan_range(state, [*landed, *planned], most, again=runs.failures > 0)
        if plan.windows:
            return RunPlan(plan.new_keys, (plan.windows[0].key, plan.windows[-1].key))
        reason = f"caught up at {observation.landed_end}"
    return RunPlan((), None, "; ".join(filter(None, (reason, state.left_out()))))


def last_runs(instance: dg.DagsterInstance, blueprint: Blueprint) -> LastRuns:
    """Look at this pipeline's newest runs."""
    records = instance.get_run_records(dg.RunsFilter(tags=blueprint.run_tags), limit=_FAILURES_COUNTED)
    active = instance.get_runs(dg.RunsFilter(tags=blueprint.run_tags, statuses=_ACTIVE), limit=1)
    failed = 0
    for record in records:
        if record.dagster_run.status not in _FAILED:
            break
        failed += 1
    # a run that was lost has no end time
    ended = (records[0].end_time or records[0].update_timestamp.timestamp()) if records else 0.0
    syncs = instance.get_runs(
        dg.RunsFilter(tags=blueprint.run_tags, job_name=blueprint.sync_job), limit=_FAILURES_COUNTED
    )
    taken = well_formed(run.tags[RANGE_END_TAG] for run in syncs if RANGE_END_TAG in run.tags)
    return LastRuns(
        active=active[0].run_id[:8] if active else None,
        failures=failed,
        seconds_since_failure=time.time() - ended,
        taken=max((window.hi for window in taken), default=Lsn(0)),
    )


def reason_to_wait(runs: LastRuns) -> str:
    """Why no run is requested now: one is in progress, or the last ones failed. Empty if there is no reason."""
    if runs.active is not None:
        return f"run {runs.active} is in progress"
    wait = back_off_seconds(runs)
    return f"the last {runs.failures} runs failed; the next try is in {wait:.0f} s" if wait > 0 else ""


def back_off_seconds(runs: LastRuns) -> float:
    """How long to leave a failing pipeline alone: 30 s after one failure, doubled with each one more, 5 min at most."""
    if runs.failures == 0:
        return 0.0
    wait = min(_FIRST_WAIT_SECONDS * 2 ** (runs.failures - 1), _LONGEST_WAIT_SECONDS)
    return float(max(0.0, wait - runs.seconds_since_failure))
