"""Many rows that are only inserted, and a table much of which has changed: with the engine ``auto``, the driver's
process writes them. With ``spark``, Spark writes each row. The source is the oracle, Spark reads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from spark_jobs.configuration import Pipeline
from spark_jobs.delta.data_files import DataFiles
from spark_jobs.lake.cuts import latest_cut
from spark_jobs.options.write_limits import WriteLimits
from spark_jobs.sync import sync
from spark_jobs.writers.with_arrow import arrow_writer
from spark_jobs.writers.with_arrow.opened_table import OpenedTable
from spark_jobs.writers.with_arrow.rewritten_rows import RowChange
from spark_jobs.writers.with_arrow.touched_files import TouchedFiles, all_files
from tests.fixtures.no_spark import SparkIsStarted, no_spark, synced_without_spark
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.row_compare import compare
from tests.fixtures.servers import Database
from tests.spark.thing_table import ROWS, THING, THING_NAME, commits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

_INSERT = ROWS.format(1001, 1400)
_REWRITE = ("UPDATE thing SET flag = NOT flag WHERE id % 3 = 0", "DELETE FROM thing WHERE id % 6 = 1")


@pytest.fixture
def followed(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """A large table, of a thousand rows, after its snapshot. 450 rows are much of it, and the machine has two cores."""
    monkeypatch.setattr(pa, "cpu_count", lambda: 2)
    limits = WriteLimits(
        rewritten_rows=300,
        rewritten_share=0.45,
        streamed_share=0.45,
        read_ahead_bytes=0,
        rows_of_file=150,
        small_bytes=0,
    )
    database.execute(THING, ROWS.format(1, 1000))
    pipeline = replace(pipeline_of(database, tmp_path / "lake", "thing"), writes=limits)
    assert sync(pipeline, no_spark).errors == ()
    return pipeline


def assert_equal(spark: SparkSession, pipeline: Pipeline) -> None:
    (found,) = compare(spark, pipeline, (THING_NAME,))
    assert found.equal
    assert found.source_rows == found.lake_rows > 0


def assert_asks_for_spark(pipeline: Pipeline) -> None:
    (error,) = sync(pipeline, no_spark).errors
    assert isinstance(error.__cause__, SparkIsStarted)


def data_files(pipeline: Pipeline) -> set[Path]:
    return set(Path(pipeline.lake.table(THING_NAME)).rglob("*.parquet"))


def test_spark_is_not_started_for_them(spark: SparkSession, database: Database, followed: Pipeline) -> None:
    database.execute(_INSERT, "INSERT INTO thing (id) VALUES (-1)")
    (applied,) = synced_without_spark(followed).tables
    assert (applied.engine, applied.strategy, applied.changes.inserts) == ("deltalake", "append", 401)
    assert_equal(spark, followed)
    newest = DeltaTable(followed.lake.table(THING_NAME)).version()
    cut = latest_cut(followed.lake)
    assert cut is not None
    shown = cut.table(THING_NAME)
    assert shown is not None
    assert (applied.delta_version, shown.version) == (newest, newest)
    added = [action["add"] for action in commits(followed)[-1] if "add" in action]
    assert len(added) == 2, "each core writes a file"


def test_a_table_much_of_which_has_changed_is_written_anew(
    spark: SparkSession, database: Database, followed: Pipeline
) -> None:
    database.execute(*_REWRITE)
    (applied,) = synced_without_spark(followed).tables
    assert (applied.engine, applied.strategy, applied.rows_written) == ("deltalake", "rewrite", 500)
    assert_equal(spark, followed)
    table = DeltaTable(followed.lake.table(THING_NAME))
    assert applied.delta_version == table.version()
    assert len(table.file_uris()) == len([action for action in commits(followed)[-1] if "add" in action]) > 1
    # Spark goes on from there
    database.execute("UPDATE thing SET small = 1 WHERE id < 20", "DELETE FROM thing WHERE id = 20")
    (applied,) = sync(followed, lambda: spark).tables
    assert (applied.engine, applied.strategy) == ("spark", "merge")
    assert_equal(spark, followed)


def test_fewer_rows_than_changes_are_merged_by_spark(
    spark: SparkSession, database: Database, followed: Pipeline
) -> None:
    """The changes are many, but not the rows that they leave to be written."""
    database.execute(*(f"UPDATE thing SET small = {n} WHERE id <= 100" for n in range(5)))
    assert_asks_for_spark(followed)
    (applied,) = sync(followed, lambda: spark).tables
    assert (applied.engine, applied.strategy, applied.changes.updates) == ("spark", "merge", 500)
    assert_equal(spark, followed)


def test_a_table_whose_readers_follow_single_rows_is_merged(
    spark: SparkSession, database: Database, followed: Pipeline
) -> None:
    path = followed.lake.table(THING_NAME)
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    database.execute(*_REWRITE)
    assert_asks_for_spark(followed)
    (applied,) = sync(followed, lambda: spark).tables
    assert (applied.engine, applied.strategy) == ("spark", "merge")
    assert_equal(spark, followed)


def test_another_writer_meanwhile(
    spark: SparkSession, database: Database, followed: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody compacts the table while its rows are read: they are read again, and nothing is written twice."""
    read = all_files
    raced: list[int] = []

    def slowly(opened: OpenedTable, change: RowChange) -> TouchedFiles:
        found = read(opened, change)
        if not raced:
            (done,) = spark.sql(f"OPTIMIZE delta.`{followed.lake.table(THING_NAME)}`").collect()
            raced.append(done["metrics"]["numFilesRemoved"])
        return found

    database.execute("INSERT INTO thing (id) VALUES (-1)")
    sync(followed, lambda: spark)
    database.execute(*_REWRITE)
    with monkeypatch.context() as patched:
        patched.setattr(arrow_writer, "all_files", slowly)
        (applied,) = synced_without_spark(followed).tables
    assert raced[0] > 1
    assert applied.strategy == "rewrite"
    assert_equal(spark, followed)
    assert synced_without_spark(followed).tables[0].outcome == "nothing to apply"


_CONDITIONS = (
    "single = 'NaN'",
    "precise > 400",
    "price = 1250.38",
    "text LIKE 'b%'",
    "moment > '1960-01-01 00:20:00Z'",
)


@pytest.mark.parametrize("change", ["append", "rewrite"])
def test_no_file_is_skipped_that_has_a_wanted_row(
    spark: SparkSession, database: Database, followed: Pipeline, change: str
) -> None:
    database.execute(_INSERT, *(_REWRITE if change == "rewrite" else ()))
    assert [applied.strategy for applied in synced_without_spark(followed).tables] == [change]
    table = spark.read.format("delta").load(followed.lake.table(THING_NAME))
    for condition in _CONDITIONS:
        found = table.where(condition).count()
        assert found > 0, condition
        assert database.execute(f"SELECT count(*) FROM thing WHERE {condition}") == [(found,)], condition


@pytest.mark.parametrize(
    "statements",
    [f"{_INSERT}; UPDATE thing SET small = 0 WHERE id = 1", "UPDATE thing SET small = 0 WHERE id <= 440"],
    ids=["an update among them", "too small a part"],
)
def test_a_merge_into_a_large_table_is_for_spark(
    spark: SparkSession, database: Database, followed: Pipeline, statements: str
) -> None:
    database.execute(*statements.split("; "))
    assert_asks_for_spark(followed)
    report = sync(followed, lambda: spark)
    assert (report.errors, [table.engine for table in report.tables]) == ((), ["spark"])
    assert_equal(spark, followed)


def test_with_the_engine_spark_every_row_is_written_by_spark(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    """Snapshots, rows that are only inserted, rewrites, and changes of a few rows."""
    database.execute(THING, ROWS.format(1, 1000))
    pipeline = replace(
        pipeline_of(database, tmp_path / "lake", "thing", engine="spark"),
        writes=WriteLimits(rewritten_rows=300, rewritten_share=0.45),
    )
    for statements, strategy in (
        ((), None),
        ((_INSERT,), "append"),
        (_REWRITE, "rewrite"),
        (("DELETE FROM thing WHERE id = 8",), "merge"),
    ):
        database.execute(*statements)
        if strategy is None:
            with pytest.raises(SparkIsStarted):
                sync(pipeline, no_spark)
        else:
            assert_asks_for_spark(pipeline)
        report = sync(pipeline, lambda: spark)
        assert report.errors == ()
        assert [table.strategy for table in report.tables if table.strategy] == ([strategy] if strategy else [])
        assert_equal(spark, pipeline)
    written = {action["commitInfo"]["engineInfo"].split("/")[0] for made in commits(pipeline) for action in made[:1]}
    assert written == {"Apache-Spark"}


@pytest.mark.parametrize("change", [_INSERT, "UPDATE thing SET small = -1"], ids=["append", "rewrite"])
def test_a_failure_leaves_no_file(
    spark: SparkSession, database: Database, followed: Pipeline, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    before = data_files(followed)
    write = DataFiles.write

    def full(files: DataFiles, group: pa.Table) -> None:
        write(files, group)
        if not {300, 1300}.isdisjoint(group.column(0).to_pylist()):
            raise files._failed(OSError("no space left on device"))

    database.execute(change)
    with monkeypatch.context() as patched:
        patched.setattr(DataFiles, "write", full)
        (error,) = sync(followed, no_spark).errors
    assert "no space left on device" in error.what
    assert data_files(followed) == before
    synced_without_spark(followed)
    assert_equal(spark, followed)


def test_a_table_that_somebody_has_partitioned_is_left_to_spark(
    spark: SparkSession, database: Database, followed: Pipeline
) -> None:
    path = followed.lake.table(THING_NAME)
    rows = spark.read.format("delta").load(path)
    rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true").partitionBy("flag").save(path)
    database.execute(_INSERT)
    assert_asks_for_spark(followed)
    assert sync(followed, lambda: spark).errors == ()
    assert_equal(spark, followed)
