"""How code gets a session: it calls a provider once there is work for Spark, as a JVM takes seconds to start."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# may be called by several threads at once
SparkProvider: TypeAlias = "Callable[[], SparkSession]"


class LazySession:
    """A provider that is told how much is ahead. The first call starts the session: ``start`` is given whether it has
    little to do, which is false if nobody has told."""

    def __init__(self, start: Callable[[bool], SparkSession]) -> None:
        self._start = start
        self._is_little: Callable[[], bool] = lambda: False
        self._session: SparkSession | None = None
        self._lock = threading.Lock()

    def expect(self, is_little: Callable[[], bool]) -> None:
        """``is_little`` is asked when the session starts; it may be told anew until then."""
        self._is_little = is_little

    def __call__(self) -> SparkSession:
        with self._lock:
            if self._session is None:
                self._session = self._start(self._is_little())
            return self._session


def one_at_a_time(spark: SparkProvider) -> SparkProvider:
    """``spark`` made safe for threads: two concurrent first calls would start two sessions."""
    lock = threading.Lock()

    def session() -> SparkSession:
        with lock:
            return spark()

    return session
