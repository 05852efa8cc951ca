"""A lake that is maintained, by us and by others: every table goes on, and what retention promises can be read."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable
from pydantic import SecretStr

from spark_jobs.capture.capture import capture
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.configuration import Lake, Pipeline, Retention, Source, Table
from spark_jobs.delta.table import delta_identifier
from spark_jobs.lake.cuts import latest_cut
from spark_jobs.maintain.maintain import MaintainReport, maintain
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.sync import SyncReport, sync
from spark_jobs.verify.verify import verify
from spark_jobs.writers.table_upkeep import TableFiles
from tests.fixtures.no_spark import no_spark, synced_without_spark
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database
from tests.spark.followed_pipeline import Followed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

BUSY, IDLE = QualifiedName("public", "busy"), QualifiedName("public", "idle")
_NOTHING_OLD = Retention(change_log=timedelta(0))


@pytest.fixture
def followed(spark: SparkSession, database: Database, tmp_path: Path) -> Followed:
    for table in (BUSY, IDLE):
        database.execute(
            f"CREATE TABLE {table} (id int PRIMARY KEY, n int)",
            f"INSERT INTO {table} SELECT g, 0 FROM generate_series(1, 100) g",
        )
    source = Source(SecretStr(database.dsn), database.name, database.name, messages=True)
    pipeline = Pipeline(database.name, source, Lake(str(tmp_path / "lake")), tables=(Table(BUSY), Table(IDLE)))
    return Followed(spark, database, pipeline, (BUSY, IDLE))


def synced(followed: Followed, pipeline: Pipeline | None = None) -> SyncReport:
    report = sync(pipeline or followed.pipeline, lambda: followed.spark)
    assert report.errors == ()
    return report


def changed(followed: Followed, table: QualifiedName, turn: int) -> None:
    followed.database.execute(
        f"UPDATE {table} SET n = {turn} WHERE id % 10 = {turn}",
        f"SELECT pg_logical_emit_message(true, 'turn', '{turn}')",
    )


def maintained(followed: Followed, **changes: object) -> MaintainReport:
    report = maintain(replace(followed.pipeline, **changes), lambda: followed.spark)  # type: ignore[arg-type]
    assert report.errors == ()
    return report


def neglect(followed: Followed, table: QualifiedName) -> None:
    """What a table meets that lies idle for a year: others compact it, identifiers expire, the log is cleaned up."""
    path = followed.pipeline.lake.table(table)
    properties = "'delta.setTransactionRetentionDuration' = 'interval 1 second', 'delta.checkpointInterval' = '1'"
    followed.spark.sql(f"ALTER TABLE {delta_identifier(path)} SET TBLPROPERTIES ({properties})")
    followed.spark.sql(f"OPTIMIZE {delta_identifier(path)}")
    for comment in ("a", "b"):  # each leaves a checkpoint
        followed.spark.sql(f"ALTER TABLE {delta_identifier(path)} SET TBLPROPERTIES ('note' = '{comment}')")
    cut = latest_cut(followed.pipeline.lake)
    assert cut is not None
    known = cut.table(table)
    assert known is not None
    for version in range(known.version + 1):
        Path(path, "_delta_log", f"{version:020}.json").unlink(missing_ok=True)


def checkpoint_interval(followed: Followed, table: QualifiedName) -> str | None:
    return DeltaTable(followed.pipeline.lake.table(table)).metadata().configuration.get("delta.checkpointInterval")


def test_maintained_and_neglected_tables_go_on(followed: Followed) -> None:
    log = ChangeLog(followed.pipeline.lake.change_log)
    synced(followed)
    for turn in range(1, 5):
        changed(followed, BUSY, turn)
        synced(followed)
    cut, rows = latest_cut(followed.pipeline.lake), followed.lake_rows(BUSY)[0]
    assert cut is not None

    report = maintained(followed)
    assert report.change_log is not None
    assert report.cuts is not None
    assert report.messages is not None
    assert (report.change_log.files_after, report.cuts.files_after, report.messages.files_after) == (1, 1, 1)
    assert (report.first_window, report.held_by, log.markers()[0].ordinal) == (0, "", 0)
    followed.assert_equal()
    neglect(followed, IDLE)
    for turn, table in ((5, BUSY), (6, IDLE)):
        changed(followed, table, turn)
        assert synced(followed).snapshots == ()
    followed.assert_equal()
    shown = cut.table(BUSY)
    assert shown is not None
    then = followed.spark.read.option("versionAsOf", shown.version).format("delta")
    assert sorted(map(tuple, then.load(followed.pipeline.lake.table(BUSY)).collect())) == sorted(rows)
    messages = followed.spark.read.format("delta").load(followed.pipeline.lake.messages)
    assert messages.count() == 6

    # landed and not applied: old as they may be, these windows stay
    behind = log.checkpoint()
    assert behind is not None
    changed(followed, BUSY, 7)
    capture(followed.pipeline)
    report = maintained(followed, retention=_NOTHING_OLD)
    assert report.first_window == behind.ordinal
    assert report.held_by
    assert checkpoint_interval(followed, IDLE) == "1", "its owner's"
    synced(followed)
    followed.assert_equal()


def test_a_table_that_was_not_followed_for_longer_than_the_log_reaches_is_read_again(followed: Followed) -> None:
    synced(followed)
    without = replace(followed.pipeline, tables=(Table(BUSY),))
    for turn in range(2):
        changed(followed, IDLE, turn)
        changed(followed, BUSY, turn)
        synced(followed, without)
    report = maintained(followed, tables=(Table(BUSY),), retention=_NOTHING_OLD)
    assert report.first_window > 1
    (taken,) = synced(followed).snapshots
    assert taken.name == IDLE
    followed.assert_equal()


def test_a_plain_table_is_maintained_without_spark(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE busy (id int PRIMARY KEY, n int)", "INSERT INTO busy VALUES (0, 0)")
    pipeline = pipeline_of(database, tmp_path / "lake", str(BUSY))
    path = Path(pipeline.lake.table(BUSY))

    def appended(*numbers: int) -> None:
        for number in numbers:
            database.execute(f"INSERT INTO busy VALUES ({number}, 0)")
            synced_without_spark(pipeline)

    def files(report: MaintainReport) -> TableFiles | None:
        assert report.errors == ()
        return report.tables[0].files

    def shown() -> int:
        cut = latest_cut(pipeline.lake)
        assert cut is not None
        known = cut.table(BUSY)
        assert known is not None
        return known.version

    synced_without_spark(pipeline)
    appended(1, 2, 3)
    then = shown()
    killed, at_work = path / "part-00000-killed.parquet", path / "part-00000-at-work.parquet"
    for file, days in ((killed, 31), (at_work, 29)):
        file.write_bytes(b"")
        os.utime(file, (time.time() - days * 86400,) * 2)
    assert files(maintain(pipeline, no_spark)) == TableFiles(4, 1)
    assert not killed.exists()
    assert at_work.exists()
    assert DeltaTable(str(path), then).to_pyarrow_table().num_rows == 4
    assert shown() == DeltaTable(str(path)).version() > then
    assert files(maintain(pipeline, no_spark)) == TableFiles(1, 1)
    assert shown() == DeltaTable(str(path)).version(), "nothing was to be done"

    appended(4, 5)
    by_spark = replace(pipeline, merge_engine="spark")
    (error,) = maintain(by_spark, no_spark).errors
    assert "SparkIsStarted" in str(error), "it writes every row"
    assert files(maintain(by_spark, lambda: spark)) == TableFiles(3, 1)
    assert shown() == DeltaTable(str(path)).version()
    assert files(maintain(by_spark, no_spark)) == TableFiles(1, 1), "Spark is only needed to write rows"
    appended(6)
    assert verify(pipeline, no_spark).problems == ()
