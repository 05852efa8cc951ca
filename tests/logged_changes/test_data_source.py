"""The format ``postgres_cdc`` of Spark, in a batch and as a stream, against the audit log of the source."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from cdc_assets import ChangesSource
from spark_jobs.capture.capture import capture
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.configuration import Pipeline
from spark_jobs.logged_changes.changes import changes
from tests.fixtures.pipelines import pipeline_of, prepare_slot
from tests.fixtures.servers import Database
from tests.logged_changes.audited_changes import MADE, TABLES, TRANSACTIONS, assert_as_audited, commit
from tests.spark.audit import Row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]


@pytest.fixture
def logged(spark: SparkSession, database: Database, tmp_path: Path) -> Pipeline:
    """The audited tables, with a slot and no changes."""
    spark.dataSource.register(ChangesSource)
    database.execute(*MADE)
    pipeline = pipeline_of(database, tmp_path / "lake", *(f"public.{name}" for name in TABLES))
    prepare_slot(pipeline)
    return pipeline


class StoppedError(Exception):
    """What a delivery that is broken off raises."""


@dataclass
class Deliveries:
    """A sink that knows the batches that it has: it keeps each once, as Spark's own sinks do."""

    spark: SparkSession
    pipeline: Pipeline
    checkpoint: Path
    batches: dict[int, list[Row]] = field(default_factory=dict)
    stopped: int = 0

    @property
    def rows(self) -> list[Row]:
        rows = [row for number in sorted(self.batches) for row in self.batches[number]]
        return sorted(rows, key=lambda row: (row["_commit_lsn"], row["_ordinal"]))

    def run(self, *, stop: str = "") -> None:
        """What is landed; ``stop``: ``before`` or ``after`` a batch has arrived. Raises StreamingQueryException."""

        def deliver(frame: DataFrame, number: int) -> None:
            if stop == "before":
                raise StoppedError
            rows = frame.toArrow().to_pylist()
            assert self.batches.setdefault(number, rows) == rows  # again, it is the same
            if stop == "after":
                raise StoppedError

        options = {"path": self.pipeline.lake.path, "table": "public.keyed"}
        stream = self.spark.readStream.format("postgres_cdc").options(**options).load()
        writer = stream.writeStream.foreachBatch(deliver).option("checkpointLocation", str(self.checkpoint))
        query = writer.trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()


def test_a_batch_and_a_stream_that_is_stopped_again_and_again(
    spark: SparkSession, database: Database, logged: Pipeline, tmp_path: Path
) -> None:
    deliveries = Deliveries(spark, logged, tmp_path / "checkpoint")
    for n, statements in enumerate(TRANSACTIONS):
        commit(database, statements)
        capture(logged)
        if stop := ("", "before", "after")[n % 3]:
            with pytest.raises(StreamingQueryException):
                deliveries.run(stop=stop)
    deliveries.run()
    assert_as_audited(deliveries.rows, database, "keyed")
    assert len(deliveries.batches) > 1
    options = {"path": logged.lake.path, "table": "whole"}
    frame = spark.read.format("postgres_cdc").options(**options).load().orderBy("_commit_lsn", "_ordinal")
    assert frame.toArrow().to_pylist() == changes(logged, "whole").read_all().to_pylist()
    third = ChangeLog(logged.lake.change_log).markers()[3].window
    part = spark.read.format("postgres_cdc").options(**options, partition=third.key).load()
    assert part.count() == changes(logged, "whole", partition=third).read_all().num_rows > 0


def test_a_stream_stops_where_columns_change_and_goes_on_with_them(
    spark: SparkSession, database: Database, logged: Pipeline, tmp_path: Path
) -> None:
    deliveries = Deliveries(spark, logged, tmp_path / "checkpoint")
    commit(database, TRANSACTIONS[0])
    capture(logged)
    options = {"path": logged.lake.path, "table": "public.keyed"}
    stream = spark.readStream.format("postgres_cdc").options(**options).load()
    commit(database, ["ALTER TABLE {t} ADD w int DEFAULT 5", "UPDATE {t} SET w = id WHERE id < 3"])
    capture(logged)
    checkpoint = str(deliveries.checkpoint)
    query = stream.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
    with pytest.raises(StreamingQueryException, match=r"the columns of public\.keyed changed"):
        query.awaitTermination()
    deliveries.run()
    assert [row["after"]["w"] for row in deliveries.rows] == [None] * 20 + [1, 2]


def test_wrong_options_say_what_is_wrong(spark: SparkSession, logged: Pipeline) -> None:
    def refused(**options: str) -> str:
        with pytest.raises(PySparkException) as raised:
            spark.read.format("postgres_cdc").options(**options).load()
        return str(raised.value)

    path = logged.lake.path
    assert "give the options table, and either config or path" in refused(path=path)
    assert "there is no option tabel" in refused(path=path, tabel="public.keyed")
    assert "neither an LSN nor a time" in refused(path=path, table="public.keyed", **{"from": "noon"})
    assert "knows no table public.nothing" in refused(path=path, table="public.nothing")
