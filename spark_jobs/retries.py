"""Which errors are retried, how often and for how long: decided here, by the kind of the error.

===========================  ==============================  ======================================================
error                        tries                           why
===========================  ==============================  ======================================================
SourceBusyError              4 within 2 s                    a starting server soon accepts connections
ConnectionLostError          6 within 20 s                   a server that restarts or fails over is back by then
StorageBusyError             8, none after two minutes; each  a storm of "slow down" is over after a minute
                             has those of the client in it
OvertakenError               6 at once                       another writer's commit stands; this one reads it first
a request without an answer  6 at once                       the client, which repeats others, leaves it at that
a concurrent Delta commit    5 within 8 s                    no writer of ours: an OPTIMIZE or VACUUM, soon done
a whole run of Dagster's     as the run's own policy says    ``MAY_PASS``: a second try may differ
===========================  ==============================  ======================================================

Only work that may be done twice is retried as a whole: making a connection, reading the catalogue, preparing a slot,
capturing windows, writing a table. Each retry first looks at what is done already.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar

from tenacity import (
    RetryCallState,
    retry,
    retry_if_exception,
    retry_if_exception_type,
    stop_after_attempt,
    wait_exponential_jitter,
    wait_random_exponential,
)

from spark_jobs.errors import (
    CdcError,
    ConnectionLostError,
    LakeError,
    OvertakenError,
    SlotInUseError,
    SourceBusyError,
    SourceUnreachableError,
    SparkError,
    SpoolError,
    StorageBusyError,
)

P = ParamSpec("P")
Answer = TypeVar("Answer")
Result = TypeVar("Result", covariant=True)

# what may pass while one table is written, so that it is written again
PASSING = (OvertakenError, StorageBusyError)
# other errors (a gap, a lost slot, a wrong configuration) are the same on every retry of a run
MAY_PASS = (SourceUnreachableError, LakeError, SpoolError, SparkError)

_log = logging.getLogger(__name__)
_PAUSE = wait_exponential_jitter(multiplier=0.5, max=8, jitter=0.5)
_BUSY_SECONDS = 120


class Retried(Protocol[P, Result]):
    """A function with retries; ``statistics`` are those that tenacity keeps of its last call."""

    statistics: dict[str, Any]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Result: ...


def again_when_busy(work: Callable[P, Answer]) -> Callable[P, Answer]:
    """Try ``work`` four times within about two seconds while the server is starting or has no connection to spare."""
    again = retry(
        retry=retry_if_exception_type(SourceBusyError),
        stop=stop_after_attempt(4),
        wait=wait_exponential_jitter(multiplier=0.2, max=3, jitter=0.2),
        reraise=True,
    )
    return again(work)


def again_when_lost(work: Callable[P, Answer]) -> Callable[P, Answer]:
    """Try ``work`` six times within about twenty seconds: a server that restarts, fails over or had a session ended is
    back by then. ``work`` makes its own connections. The same while the lake's storage is busy."""
    again = retry(
        retry=_lost_before,
        stop=_is_enough,
        wait=_PAUSE,
        before_sleep=_log_retry,
        reraise=True,
    )
    return again(work)


def again_when_overtaken(work: Callable[P, Answer]) -> Callable[P, Answer]:
    """Try ``work`` six times without a pause. ``work`` reads the table's state itself. Every lost try means that
    another writer has committed, so it does not meet the same commit twice. With pauses while the lake's storage is
    busy."""
    again = retry(
        retry=retry_if_exception_type(PASSING),
        stop=_is_enough,
        wait=_pause_when_busy,
        before_sleep=_log_busy,
        reraise=True,
    )
    return again(work)


def again_when_unanswered(
    is_unanswered: Callable[[BaseException], bool],
) -> Callable[[Callable[P, Answer]], Retried[P, Answer]]:
    """Try ``work`` six times without a pause. ``work`` is one request to the storage that may be made twice, and has
    waited long enough for its answer."""
    return retry(retry=retry_if_exception(is_unanswered), stop=stop_after_attempt(6), reraise=True)


def again_when_concurrent(
    is_concurrent: Callable[[BaseException], bool],
) -> Callable[[Callable[P, Answer]], Retried[P, Answer]]:
    """Try ``work`` five times with random pauses of at most eight seconds in all. ``work`` is one Delta commit with a
    transaction identifier. What came in between is no writer of ours, so the commit still fits."""
    return retry(
        retry=retry_if_exception(is_concurrent),
        stop=stop_after_attempt(5),
        wait=wait_random_exponential(multiplier=0.5, max=10),
        reraise=True,
    )


def _lost_before(state: RetryCallState) -> bool:
    """Whether to try again. A server that refuses the first connection is an error at once; one that had answered is
    waited for. Whatever the lost session held, such as a slot, is free once the server has noticed the loss."""
    error = state.outcome.exception() if state.outcome else None
    back_soon = state.attempt_number > 1 and isinstance(error, (SourceUnreachableError, SlotInUseError))
    return back_soon or isinstance(error, (ConnectionLostError, StorageBusyError))


def _is_enough(state: RetryCallState) -> bool:
    if not _is_busy(state):
        return state.attempt_number >= 6
    # each try has those of the storage's client in it, which may take minutes where nobody answers
    return state.attempt_number >= 8 or (state.seconds_since_start or 0.0) > _BUSY_SECONDS


def _pause_when_busy(state: RetryCallState) -> float:
    return _PAUSE(state) if _is_busy(state) else 0.0


def _is_busy(state: RetryCallState) -> bool:
    return state.outcome is not None and isinstance(state.outcome.exception(), StorageBusyError)


def _log_busy(state: RetryCallState) -> None:
    if _is_busy(state):
        _log_retry(state)


def _log_retry(state: RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    what = error.what if isinstance(error, CdcError) else error
    _log.warning("%s; trying again in %.1f s", what, state.upcoming_sleep)
