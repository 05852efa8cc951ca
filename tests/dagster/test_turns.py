"""Steps of one run that need the slot at the same moment: one waits for the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import dagster as dg
import pytest
from dagster._core.execution.stats import StepEventStatus

from cdc_assets.assets import turns
from cdc_assets.assets.turns import in_turn
from cdc_assets.failures import Remedies, failures
from spark_jobs.errors import CdcError, SlotInUseError, SourceError


@dataclass
class Step:
    """What Dagster records of a step."""

    step_key: str
    status: StepEventStatus


@pytest.mark.parametrize(
    ("error", "other", "attempts"),
    [
        (SlotInUseError("busy"), StepEventStatus.IN_PROGRESS, 3),
        (SlotInUseError("busy"), StepEventStatus.SUCCESS, 1),
        (SourceError("wrong"), StepEventStatus.IN_PROGRESS, 1),
    ],
)
def test_a_step_waits_for_another_one_of_its_run(
    error: CdcError, other: StepEventStatus, attempts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "_SECONDS", 0)
    monkeypatch.setattr(dg.DagsterInstance, "get_run_step_stats", lambda *_: [Step("shop_snapshots", other)])
    seen: list[int] = []

    @dg.asset
    def log(context):  # type: ignore[no-untyped-def]  # Dagster refuses postponed annotations here
        yield from in_turn(context, _busy_at_first())

    def _busy_at_first() -> Iterator[Any]:
        seen.append(1)
        with failures(Remedies("shop_recover", {})):
            if len(seen) < 3:
                raise error
        yield dg.MaterializeResult()

    result = dg.materialize([log], raise_on_error=False)
    assert (result.success, len(seen)) == (attempts == 3, attempts)
