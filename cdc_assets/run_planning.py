"""Which partitions to add, and whether to ask for a run now: what sensor and schedule share.

The instance's own records are the only state. A run takes every window after the last run's; what a failed run left
behind, its successor makes good, because a table always starts from its own watermark.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import dagster as dg

from cdc_assets.blueprint import Blueprint
from cdc_assets.partitions import well_formed, windows_to_add
from cdc_assets.slot_observation import Observation, markers_since
from spark_jobs.logicalrep.lsn import Lsn, Window

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
# each partition of a run is an event for each table
_MOST_MARKED_PER_RUN = 500


@dataclass(frozen=True)
class RunPlan:
    """``new_keys`` to add, in LSN order; ``request`` is the range to run, None with the ``reason`` not to."""

    new_keys: tuple[str, ...]
    request: tuple[str, str] | None
    reason: str = ""


@dataclass(frozen=True)
class LastRuns:
    """What the instance remembers of this slot's runs."""

    active: str | None
    failures: int
    seconds_since_failure: float
    last_range_end: str | None


def range_tags(key_range: tuple[str, str]) -> dict[str, str]:
    """Ask for one run over a range of partitions. Dagster has no typed way yet (dagster-io/dagster, PR 34096)."""
    return {RANGE_START_TAG: key_range[0], RANGE_END_TAG: key_range[1]}


def plan_run(instance: dg.DagsterInstance, blueprint: Blueprint, observation: Observation) -> RunPlan:
    """Add keys for whatever has no partition yet; ask for one run over what no run has taken, oldest first."""
    known = well_formed(instance.get_dynamic_partitions(f"{blueprint.name}_lsn"))
    known_end = max((window.hi for window in known), default=Lsn(0))
    landed = [marker.window for marker in markers_since(blueprint.pipeline, known_end)]
    new = windows_to_add(known_end, [*landed, *observation.planned()])
    new_keys = tuple(window.key for window in new)
    runs = last_runs(instance, blueprint)
    if runs.active is not None:
        return RunPlan(new_keys, None, f"run {runs.active} is at work on slot {blueprint.pipeline.source.slot}")
    wait = back_off_seconds(runs)
    if wait > 0:
        return RunPlan(new_keys, None, f"the last {runs.failures} runs failed; the next try is in {wait:.0f} s")
    pending = _pending([*known, *new], runs, observation.landed_end)
    if not pending:
        return RunPlan(new_keys, None, f"caught up at {observation.landed_end}")
    last = _last_of_run(pending, observation.landed_end, blueprint.pipeline.windows.max_per_run)
    return RunPlan(new_keys, (pending[0].key, last.key))


def _pending(windows: list[Window], runs: LastRuns, landed_end: Lsn) -> list[Window]:
    """Windows that no run was asked for, or that are not landed; after a failure at least the newest, to try again."""
    taken = Window.parse(runs.last_range_end).hi if runs.last_range_end else Lsn(0)
    pending = [window for window in windows if window.hi > min(taken, landed_end)]
    return windows[-1:] if not pending and runs.failures else pending


def _last_of_run(pending: list[Window], landed_end: Lsn, max_per_run: int) -> Window:
    """``max_per_run`` bounds what is read; landed windows only have to be marked, which is quick but not free."""
    landed = sum(window.hi <= landed_end for window in pending)
    return pending[: min(landed + max_per_run, _MOST_MARKED_PER_RUN)][-1]


def last_runs(instance: dg.DagsterInstance, blueprint: Blueprint) -> LastRuns:
    """Look at this slot's newest runs."""
    records = instance.get_run_records(dg.RunsFilter(tags=blueprint.run_tags), limit=_FAILURES_COUNTED)
    active = instance.get_runs(dg.RunsFilter(tags=blueprint.run_tags, statuses=_ACTIVE), limit=1)
    failed = 0
    for record in records:
        if record.dagster_run.status not in _FAILED:
            break
        failed += 1
    # a run that was lost has no end of its own
    ended = (records[0].end_time or records[0].update_timestamp.timestamp()) if records else 0.0
    syncs = instance.get_runs(
        dg.RunsFilter(tags=blueprint.run_tags, job_name=blueprint.sync_job), limit=_FAILURES_COUNTED
    )
    ends = [run.tags[RANGE_END_TAG] for run in syncs if RANGE_END_TAG in run.tags]
    return LastRuns(
        active=active[0].run_id[:8] if active else None,
        failures=failed,
        seconds_since_failure=time.time() - ended,
        last_range_end=max((end for end in ends if well_formed([end])), default=None),
    )


def back_off_seconds(runs: LastRuns) -> float:
    """How long to leave a failing pipeline alone: 30 s after one failure, twice that after two, 5 min at most."""
    if runs.failures == 0:
        return 0.0
    wait = min(_FIRST_WAIT_SECONDS * 2 ** (runs.failures - 1), _LONGEST_WAIT_SECONDS)
    return float(max(0.0, wait - runs.seconds_since_failure))
