"""What Delta keeps of tables in the JVM's memory does not grow with their number."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]

KEPT = 200
MORE = 20


def test_delta_keeps_some_tables_at_most(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    spark.range(3).write.format("delta").save(str(table))
    copies = [tmp_path / f"copy_{number}" for number in range(KEPT + MORE)]

    def is_read(copy: Path) -> bool:
        shutil.copytree(table, copy)
        return len(spark.read.format("delta").load(str(copy)).columns) == 1

    with ThreadPoolExecutor(2) as threads:
        assert all(threads.map(is_read, copies))
    jvm = spark._jvm
    assert jvm is not None
    logs = getattr(getattr(jvm.org.apache.spark.sql.delta, "DeltaLog$"), "MODULE$")
    assert KEPT - MORE < logs.cacheSize() <= KEPT
