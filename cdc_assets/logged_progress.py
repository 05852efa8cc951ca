"""Progress as lines of Dagster's log."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

from spark_jobs.progress import Progress, Step
from spark_jobs.readable_size import size

_SECONDS = 5.0


def logged_progress(log: Callable[[str], object], clock: Callable[[], float] = time.monotonic) -> Progress:
    """Progress as log lines, one every few seconds: each is an event that Dagster stores."""
    last = clock()
    first: dict[tuple[str, int | None], tuple[float, int]] = {}  # of each piece of work: when, and how much was done

    def progress(step: Step, /) -> None:
        nonlocal last
        now = clock()
        began, done = first.setdefault((step.what, step.total), (now, step.done))
        if now - last >= _SECONDS or step.done == step.total:
            last = now
            pace = (step.done - done) / (now - began) if now > began else 0.0
            log(f"{step.what} {step.detail}: {step.amount}{_rest(step, pace)}".replace(" :", ":"))

    return progress


def _rest(step: Step, pace: float) -> str:
    """The pace so far and the time left, of what is counted in bytes: tables are not alike."""
    if step.unit != "bytes" or pace <= 0:
        return ""
    speed = f", {size(round(pace))}/s"
    if step.total is None or step.done >= step.total:
        return speed
    return f"{speed}, {timedelta(seconds=round((step.total - step.done) / pace))} left"
