"""A session's provider for work that must need none."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def no_spark() -> SparkSession:
    raise AssertionError("Spark was asked for")
