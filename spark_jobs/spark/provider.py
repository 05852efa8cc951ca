"""How code gets a session: it calls a provider once there is work for Spark, as a JVM takes seconds to start."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# may be called by several threads at once
SparkProvider: TypeAlias = "Callable[[], SparkSession]"


def one_at_a_time(spark: SparkProvider) -> SparkProvider:
    """``spark`` made safe for threads: two concurrent first calls would start two sessions."""
    lock = threading.Lock()

    def session() -> SparkSession:
        with lock:
            return spark()

    return session
