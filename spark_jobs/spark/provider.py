"""How a session reaches what may need one: asked for where there is work for it, as a JVM takes seconds to start."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SparkProvider: TypeAlias = "Callable[[], SparkSession]"
