"""Spark is asked ahead of time where it is certain to be needed, and the work goes on whatever it answers."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from pydantic import SecretStr

from spark_jobs.apply.apply_tables import log_read_ahead
from spark_jobs.apply.table_range import TableRange
from spark_jobs.change_log.window_marker import RelationCounts, SlotIdentity, WindowMarker
from spark_jobs.configuration import Lake, Pipeline, Source
from spark_jobs.errors import SparkError
from spark_jobs.lake.generation import Generation
from spark_jobs.lake.table_state import TableState
from spark_jobs.logicalrep.lsn import Lsn, Window
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.spark.provider import SparkProvider

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RELID = 5
_LARGE = 20 << 20
_IDENTITY = SlotIdentity(1, 1, "shop", "shop", "pgoutput", (), 180000)


def _work(changed_bytes: int, spark: SparkProvider) -> TableRange:
    source = Source(SecretStr(""), slot="shop", publication="shop")
    pipeline = Pipeline("shop", source, Lake("nowhere"))
    counts = RelationCounts(_RELID, "public", "t", bytes=changed_bytes)
    marker = WindowMarker(1, Window(Lsn(1), Lsn(2)), _IDENTITY, (counts,))
    return TableRange(
        Run(pipeline, spark), TableState(QualifiedName("public", "t"), Generation(Lsn(1)), 0, 0, 0), (marker,)
    )


def test_a_failure_is_left_to_the_write() -> None:
    asked = threading.Event()

    def no_spark() -> SparkSession:
        asked.set()
        raise SparkError("no Spark Connect server answers")

    with log_read_ahead(_work(_LARGE, no_spark)):
        assert asked.wait(10)


@pytest.mark.parametrize("changed_bytes", [1 << 20, 200 << 20], ids=["few changes", "executors"])
def test_spark_is_not_asked_in_vain(changed_bytes: int) -> None:
    asked: list[object] = []

    def spark() -> SparkSession:
        asked.append(changed_bytes)
        raise SparkError("nobody asked for it")

    with log_read_ahead(_work(changed_bytes, spark)):
        pass
    assert asked == []
