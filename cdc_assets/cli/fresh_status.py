"""A pipeline's status for scrapes. However many there are, the source is queried seldom, and if it does not answer, no
scrape waits for it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from spark_jobs.errors import CdcError
from spark_jobs.status import PipelineStatus

_log = logging.getLogger(__name__)

# Prometheus waits ten seconds for an answer
_PATIENCE_SECONDS = 5.0
# an older status is not shown: it would say that all is well
_TOO_OLD_SECONDS = 60.0


class FreshStatus:
    """The status that ``look`` finds. It is called again once ``every`` seconds have passed since it last answered,
    never twice at a time."""

    def __init__(
        self, look: Callable[[], PipelineStatus], *, every: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._look, self._every, self._clock = look, every, clock
        self._lock = threading.Lock()
        self._looking: threading.Thread | None = None
        self._last: PipelineStatus | None = None
        self._looked_at: float | None = None

    def __call__(self) -> PipelineStatus | None:
        """None if the last one is too old: the source does not answer, or the change log cannot be read."""
        with self._lock:
            if self._looking is None and self._is_older_than(self._every):
                self._looking = threading.Thread(target=self._look_again, name="status", daemon=True)
                self._looking.start()
            looking = self._looking
        if looking is not None:
            looking.join(_PATIENCE_SECONDS)
        with self._lock:
            return None if self._is_older_than(max(_TOO_OLD_SECONDS, 2 * self._every)) else self._last

    def _is_older_than(self, seconds: float) -> bool:
        return self._looked_at is None or self._clock() - self._looked_at >= seconds

    def _look_again(self) -> None:
        status = None
        try:
            status = self._look()
        except CdcError as error:
            _log.warning("there is no status for the metrics: %s", error)
        finally:
            with self._lock:
                self._last, self._looked_at, self._looking = status, self._clock(), None
