"""What a process that follows reports: metrics of its rounds, and whether it is healthy."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.metadata import version
from platform import python_version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info

from cdc_assets.cli.prometheus import StatusMetrics
from spark_jobs.follow import FollowRound
from spark_jobs.status import PipelineStatus

# a round may take as long as a large MERGE
_BUCKETS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
_LEAST_SECONDS, _ROUNDS = 60.0, 3


class FollowMonitor:
    """The rounds of ``pipeline``, one at most ``every`` seconds; ``status`` is asked with each scrape.

    The process is well if its last round ended lately and nothing stopped the whole pipeline. A table that is stopped
    does not count: no restart would mend it.
    """

    def __init__(
        self,
        pipeline: str,
        status: Callable[[], PipelineStatus | None],
        *,
        every: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock, self._begun = clock, clock()
        self._bound = max(_LEAST_SECONDS, _ROUNDS * every)
        self._last: tuple[FollowRound, float] | None = None
        self.registry = CollectorRegistry(auto_describe=True)
        self.registry.register(StatusMetrics(status))
        self._seconds = Histogram(
            "postgres_cdc_round_seconds", "duration of a round", ["pipeline"], registry=self.registry, buckets=_BUCKETS
        ).labels(pipeline)
        self._failed = Counter(
            "postgres_cdc_failed_rounds",
            "rounds with an error that stops all tables",
            ["pipeline"],
            registry=self.registry,
        ).labels(pipeline)
        self._rounds = Counter(
            "postgres_cdc_rounds", "rounds that have ended", ["pipeline"], registry=self.registry
        ).labels(pipeline)
        age = "time since the last round ended; before the first one, since the process began"
        Gauge("postgres_cdc_last_round_age_seconds", age, ["pipeline"], registry=self.registry).labels(
            pipeline
        ).set_function(self._age)
        Info("postgres_cdc_build", "versions of postgres-cdc and Python", registry=self.registry).info(
            {"version": version("dagster-postgres-cdc"), "python": python_version()}
        )

    def note(self, done: FollowRound) -> None:
        """Call it after each round."""
        self._last = done, self._clock()
        self._seconds.observe(done.seconds)
        self._rounds.inc()
        self._failed.inc(bool(done.pipeline_errors))

    @property
    def last_round(self) -> FollowRound | None:
        return self._last[0] if self._last else None

    @property
    def trouble(self) -> str:
        """One line that says why the process is not well; empty if it is."""
        if self._last is None:
            return "no round has ended yet"
        done, _ = self._last
        if done.pipeline_errors:
            return "; ".join(done.pipeline_errors)
        age = self._age()
        return f"the last round ended {age:,.0f} s ago, the bound is {self._bound:,.0f} s" if age > self._bound else ""

    def _age(self) -> float:
        return self._clock() - (self._last[1] if self._last else self._begun)
