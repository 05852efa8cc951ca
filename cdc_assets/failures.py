"""The engine's errors as Dagster's failures, retried only if a second try may succeed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import dagster as dg

from spark_jobs.errors import CdcError
from spark_jobs.retries import MAY_PASS


def failure_of(errors: Sequence[CdcError]) -> dg.Failure:
    """The failure that shows one or more errors, with the hint on a line of its own; it is retried if one of them may
    pass."""
    text = "\n".join(error.lines for error in errors)
    return dg.Failure(text, allow_retries=any(isinstance(error, MAY_PASS) for error in errors))


@contextmanager
def failures() -> Iterator[None]:
    """Raise the engine's errors as Dagster's."""
    try:
        yield
    except CdcError as error:
        raise failure_of([error]) from error
