"""How a session reaches what may need one: asked for where there is work for it, as a JVM takes seconds to start."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SparkProvider: TypeAlias = "Callable[[], SparkSession]"


def one_at_a_time(spark: SparkProvider) -> SparkProvider:
    """``spark`` for threads: two that ask at once would start two sessions."""
    lock = threading.Lock()

    def session() -> SparkSession:
        with lock:
            return spark()

    return session
