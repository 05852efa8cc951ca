"""The engine's errors as Dagster's failures: one line each, retried only if a second try may succeed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import dagster as dg

from spark_jobs.errors import CdcError
from spark_jobs.progress import Progress, Step
from spark_jobs.retries import MAY_PASS

_PROGRESS_SECONDS = 5.0


def failure_of(errors: Sequence[CdcError]) -> dg.Failure:
    """The failure that shows one or more errors; it is retried if one of them may pass."""
    text = "; ".join(str(error) for error in errors)
    return dg.Failure(text, allow_retries=any(isinstance(error, MAY_PASS) for error in errors))


@contextmanager
def failures() -> Iterator[None]:
    """Raise the engine's errors as Dagster's."""
    try:
        yield
    except CdcError as error:
        raise failure_of([error]) from error


def logged_progress(log: Callable[[str], object]) -> Progress:
    """Progress as log lines, one every few seconds: each is an event that Dagster stores."""
    last = time.monotonic()

    def progress(step: Step, /) -> None:
        nonlocal last
        if time.monotonic() - last >= _PROGRESS_SECONDS or step.done == step.total:
            last = time.monotonic()
            of = "" if step.total is None else f" of {step.total:,}"
            log(f"{step.what} {step.detail}: {step.done:,}{of} {step.unit}".replace(" :", ":"))

    return progress
