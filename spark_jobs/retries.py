"""Which errors are tried again, how often and for how long: decided here, by the kind of the error.

Only what may be done twice is tried again as a whole: making a connection, reading the catalogue, preparing a slot,
capturing windows, each of which looks first at what is done already. (A Delta commit that another writer came before is
``spark_jobs.lake.net_write``'s affair.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from tenacity import RetryCallState, retry, retry_if_exception_type, stop_after_attempt, wait_exponential_jitter

from spark_jobs.errors import CdcError, ConnectionLostError, SlotInUseError, SourceBusyError, SourceUnreachableError

P = ParamSpec("P")
Answer = TypeVar("Answer")

_log = logging.getLogger(__name__)


def again_when_busy(work: Callable[P, Answer]) -> Callable[P, Answer]:
    """A server that starts, or has no connection to spare, is asked four times within about two seconds."""
    again = retry(
        retry=retry_if_exception_type(SourceBusyError),
        stop=stop_after_attempt(4),
        wait=wait_exponential_jitter(multiplier=0.2, max=3, jitter=0.2),
        reraise=True,
    )
    return again(work)


def again_when_lost(work: Callable[P, Answer]) -> Callable[P, Answer]:
    """``work`` makes its own connections, and is begun six times within about twenty seconds: a server that restarts,
    fails over or had a session ended is back by then."""
    again = retry(
        retry=_lost_before,
        stop=stop_after_attempt(6),
        wait=wait_exponential_jitter(multiplier=0.5, max=8, jitter=0.5),
        before_sleep=_tell,
        reraise=True,
    )
    return again(work)


def _lost_before(state: RetryCallState) -> bool:
    """A server that refuses the first connection is told of at once; one that had answered is waited for. What the
    lost session held, a slot say, is free as soon as the server has noticed."""
    error = state.outcome.exception() if state.outcome else None
    back_soon = state.attempt_number > 1 and isinstance(error, (SourceUnreachableError, SlotInUseError))
    return back_soon or isinstance(error, ConnectionLostError)


def _tell(state: RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    what = error.what if isinstance(error, CdcError) else error
    _log.warning("%s; trying again in %.1f s", what, state.upcoming_sleep)
