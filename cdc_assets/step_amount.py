"""How far a step is, in readable figures: for a terminal and for Dagster's log."""

from __future__ import annotations

from spark_jobs.progress import Step
from spark_jobs.readable_size import size


def step_amount(step: Step) -> str:
    """``3 of 10 windows``, ``412.3 MiB of 1.1 GiB``; without the total if it is not known."""
    if step.unit == "bytes":
        return size(step.done) if step.total is None else f"{size(step.done)} of {size(step.total)}"
    return f"{step.done:,} {step.unit}" if step.total is None else f"{step.done:,} of {step.total:,} {step.unit}"
