"""Which partitions to add, whether to request a run now, and its pool: shared by sensor and schedules.

The instance's own records are the only state. A run takes every window after the last run's. What a failed run left
undone, the next one does, because a table always starts from its own watermark. A table that is stopped waits on its
own: the runs go on for the others.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile

import dagster as dg

from cdc_assets.assets.checks import stopped_now
from cdc_assets.automation.range_planning import PartitionState, plan_range
from cdc_assets.blueprint import Blueprint
from cdc_assets.partitions import well_formed
from cdc_assets.slot_observation import Observation, landed_chapters, markers_since
from cdc_assets.stopped_tables import StoppedTable, StoppedTables
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.options.time_partitions import ends_of

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
_DOUBLED_AT_MOST = 8
_RUNS_LOOKED_AT = 16
# the source's clock may be a little behind this one
_QUIET = timedelta(minutes=1)


@dataclass(frozen=True)
class RunPlan:
    """``request``: the range to run, and ``new_keys`` to add for it, in LSN order; or None, with the ``reason``.

    ``stopped``: the tables that are stopped; the run leaves out those of ``waiting``, whose turn it is not.
    """

    new_keys: tuple[str, ...]
    request: tuple[str, str] | None
    reason: str
    stopped: StoppedTables
    waiting: tuple[StoppedTable, ...]


@dataclass(frozen=True)
class LastRuns:
    """The instance's records of this pipeline's runs. ``taken``: the end of the last range that was requested in this
    chapter of the change log; ``failures``: how many runs in a row have failed; ``stopped`` tables. ``begun``: when the
    last sync was requested, in seconds since 1970."""

    active: str | None
    failures: int
    seconds_since_failure: float
    taken: Lsn
    stopped: StoppedTables
    begun: float = 0.0


def plan_run(instance: dg.DagsterInstance, blueprint: Blueprint, observation: Observation) -> RunPlan:
    """Plan one run over the windows that were not requested yet, oldest first, with keys for those that have none.

    Keys are added only with a run: while one is in progress, or waits after a failure, the next window simply grows.
    """
    planned = observation.planned()  # raises if there is a gap, whatever the runs do
    chapters = landed_chapters(blueprint.pipeline)
    assert chapters is not None  # there is an observation, hence a log
    present = chapters.present
    runs = last_runs(instance, blueprint, since=present.began)
    waiting = tuple(table for table in runs.stopped.tables if seconds_to_wait(table.tries, time.time() - table.tried))
    keys = instance.get_dynamic_partitions(f"{blueprint.name}_lsn")
    flushed = observation.health.flushed_lsn
    state = PartitionState(keys, present.landed.lo, observation.landed_end, flushed, runs.taken)
    reason = reason_to_wait(runs)
    if not reason:
        landed = [marker.window for marker in markers_since(blueprint.pipeline, state.keyed_end)]
        most = blueprint.pipeline.windows.max_per_run
        tries = runs.failures > 0 or len(waiting) < len(runs.stopped.tables)
        again = tries or _reads_on(blueprint) or _has_ended(blueprint, observation, runs)
        plan = plan_range(state, [*landed, *planned], most, again=again)
        if plan.windows:
            key_range = plan.windows[0].key, plan.windows[-1].key
            return RunPlan(plan.new_keys, key_range, "", runs.stopped, waiting)
        reason = f"caught up at {observation.landed_end}"
    parts = (reason, *map(str, runs.stopped.tables), state.left_out())
    return RunPlan((), None, "; ".join(filter(None, parts)), runs.stopped, waiting)


def _reads_on(blueprint: Blueprint) -> bool:
    """Whether a run has ended before the snapshot of a large table was read to its end."""
    from spark_jobs.change_log.log import ChangeLog
    from spark_jobs.lake.table_state import table_state
    from spark_jobs.snapshot.chunks.read_record import plans

    lake = blueprint.pipeline.lake
    read_plans = [plan for plan in plans(lake) if str(plan.name) in blueprint.followed_keys]
    last = ChangeLog(lake.change_log).checkpoint() if read_plans else None
    return last is not None and any(
        plan.goes_on_from(table_state(lake, plan.name, last.identity)) for plan in read_plans
    )


def _has_ended(blueprint: Blueprint, observation: Observation, runs: LastRuns) -> bool:
    """Whether a day or an hour has ended while the source was quiet. One run finds that out, by the source's clock; if
    it does not, a transaction will."""
    if observation.settled is None:
        return False
    start = datetime.fromtimestamp(runs.begun, UTC)
    ended = ends_of(blueprint.pipeline.periods, observation.settled, datetime.now(UTC) - _QUIET)
    return bool(ended) and start < ended[-1] + _QUIET


def run_request(blueprint: Blueprint, plan: RunPlan) -> dg.RunRequest | None:
    """The planned run of the sync job. A stopped table whose turn it is not is left out: it would fail the run, and may
    be costly to try."""
    if plan.request is None:
        return None
    waiting = {table.name for table in plan.waiting}
    followed = [key for name, key in blueprint.followed_keys.items() if name not in waiting]
    return dg.RunRequest(
        job_name=blueprint.sync_job,
        tags={**range_tags(plan.request), **plan.stopped.tags},
        asset_selection=[blueprint.change_log_key, *followed] if waiting else None,
    )


def range_tags(key_range: tuple[str, str]) -> dict[str, str]:
    """Request one run over a range of partitions. Dagster has no typed way yet (dagster-io/dagster, PR 34096)."""
    return {RANGE_START_TAG: key_range[0], RANGE_END_TAG: key_range[1]}


def last_runs(instance: dg.DagsterInstance, blueprint: Blueprint, *, since: datetime | None = None) -> LastRuns:
    """Look at this pipeline's newest runs. ``since``: when the present chapter of the change log began. The ranges of
    earlier runs are in the LSNs of another one."""
    tags = blueprint.run_tags
    records = instance.get_run_records(dg.RunsFilter(tags=tags), limit=_RUNS_LOOKED_AT)
    active = instance.get_runs(dg.RunsFilter(tags=tags, statuses=_ACTIVE), limit=1)
    # a run started by hand fails for reasons of its own, and maintenance does too
    jobs = (blueprint.sync_job, blueprint.snapshot_job, blueprint.recover_job)
    judged = [record for record in records if record.dagster_run.job_name in jobs]
    failed = list(takewhile(lambda record: _failed_for_all(record.dagster_run), judged))
    # a run that was lost has no end time
    ended = (judged[0].end_time or judged[0].update_timestamp.timestamp()) if judged else 0.0
    synced = dg.RunsFilter(tags=tags, job_name=blueprint.sync_job, created_after=since)
    syncs = instance.get_runs(synced, limit=_RUNS_LOOKED_AT)
    windows = well_formed(run.tags[RANGE_END_TAG] for run in syncs if RANGE_END_TAG in run.tags)
    return LastRuns(
        active=active[0].run_id[:8] if active else None,
        failures=len(failed),
        seconds_since_failure=time.time() - ended,
        taken=max((window.hi for window in windows), default=Lsn(0)),
        stopped=stopped_now(instance, blueprint),
        begun=max(
            (r.create_timestamp.timestamp() for r in records if r.dagster_run.job_name == blueprint.sync_job),
            default=0.0,
        ),
    )


def _failed_for_all(run: dg.DagsterRun) -> bool:
    """Whether the run failed for all tables. If only some are stopped, it has advanced the change log and the others;
    then it says so in its tag."""
    return run.status in _FAILED and StoppedTables.of_run(run.tags).by != run.run_id


def reason_to_wait(runs: LastRuns) -> str:
    """Why no run is requested now: one is in progress, or the last ones failed. Empty if there is no reason."""
    if runs.active is not None:
        return f"run {runs.active} is in progress"
    wait = seconds_to_wait(runs.failures, runs.seconds_since_failure)
    return f"the last {runs.failures} runs failed; the next try is in {wait:.0f} s" if wait > 0 else ""


def seconds_to_wait(failures: int, since_last: float) -> float:
    """How long to leave what fails alone, a pipeline or a table: 30 s after one failure, doubled with each one more,
    5 min at most."""
    if failures == 0:
        return 0.0
    wait = min(_FIRST_WAIT_SECONDS * 2.0 ** min(failures - 1, _DOUBLED_AT_MOST), _LONGEST_WAIT_SECONDS)
    return max(0.0, wait - since_last)


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
