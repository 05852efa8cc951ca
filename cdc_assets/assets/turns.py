"""Steps of one run that need the slot, or a table, at the same moment.

A pool that counts runs lets all steps of its run in, and most executors start a process for each step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dagster as dg
from dagster._core.execution.stats import StepEventStatus

from spark_jobs.errors import LakeInUseError, SlotInUseError

_SECONDS = 10
_TIMES = 1000  # the other step may read a large table


def in_turn(context: dg.AssetExecutionContext, events: Iterator[Any]) -> Iterator[Any]:
    """The step's events. If another step of the same run is in its way, the step starts again until that is done."""
    try:
        yield from events
    except dg.Failure as failure:
        if isinstance(failure.__cause__, (SlotInUseError, LakeInUseError)) and _has_company(context):
            context.log.info("another step of this run is in the way; the next try is in %d s", _SECONDS)
            raise dg.RetryRequested(max_retries=_TIMES, seconds_to_wait=_SECONDS) from failure
        raise


def _has_company(context: dg.AssetExecutionContext) -> bool:
    own = context.op_execution_context.get_step_execution_context().step.key
    steps = context.instance.get_run_step_stats(context.run.run_id)
    return any(step.status == StepEventStatus.IN_PROGRESS and step.step_key != own for step in steps)
