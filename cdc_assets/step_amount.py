"""How far a step is, in readable figures: for a terminal and for Dagster's log."""

from __future__ import annotations

from rich.filesize import decimal

from spark_jobs.progress import Step


def step_amount(step: Step) -> str:
    """``3 of 10 windows``, ``412.3 MB of 1.1 GB``; without the total if it is not known."""
    if step.unit == "bytes":
        return decimal(step.done) if step.total is None else f"{decimal(step.done)} of {decimal(step.total)}"
    return f"{step.done:,} {step.unit}" if step.total is None else f"{step.done:,} of {step.total:,} {step.unit}"
