"""Which of Delta's features a table has: none that it does not need, so that as many readers as possible read it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from spark_jobs.configuration import MergeEngine, Pipeline
from spark_jobs.delta.table import delta_identifier
from spark_jobs.delta.transaction_log import TransactionLog
from spark_jobs.maintain.maintain import maintain
from spark_jobs.options.write_limits import WriteLimits
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.snapshot.snapshot import snapshot
from spark_jobs.sync import sync
from spark_jobs.writers.with_spark.simpler_table import TableSimplified
from tests.at_night import at_night
from tests.fixtures.no_spark import synced_without_spark
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database
from tests.spark.altered_tables import assert_equal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

NAME = QualifiedName("public", "plain")
PLAIN = ("CREATE TABLE plain (id int PRIMARY KEY, v text, w int)", "INSERT INTO plain VALUES (1, 'a', 1), (2, 'b', 2)")
CHANGES = (
    "UPDATE plain SET v = v || '!' WHERE id < 5",
    "DELETE FROM plain WHERE id = 2",
    "INSERT INTO plain VALUES {}",
)
BASE = {"appendOnly", "invariants"}


def features(pipeline: Pipeline) -> set[str]:
    """Those that a reader or writer has to know, beyond what every table has."""
    protocol = DeltaTable(pipeline.lake.table(NAME)).protocol()
    if protocol.writer_features is None:
        assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)
        return set()
    return {*protocol.writer_features} - BASE


def protocol_commits(pipeline: Pipeline) -> list[int]:
    """The versions that changed the protocol; none of them but the first wrote a row."""
    log = TransactionLog.open(pipeline.lake.table(NAME))
    assert log is not None
    found = [commit for commit in log.commits() if [*commit.actions("protocol")]]
    assert all(commit.version == 0 or not [*commit.actions("add")] for commit in found)
    return [commit.version for commit in reversed(found)]


@pytest.mark.parametrize("engine", ["auto", at_night("spark")])
def test_each_comes_with_the_first_thing_that_needs_it(
    spark: SparkSession, database: Database, tmp_path: Path, engine: MergeEngine
) -> None:
    database.execute(*PLAIN)
    pipeline = pipeline_of(database, tmp_path / "lake", str(NAME), engine=engine)

    def followed(*statements: str, writes: WriteLimits = pipeline.writes) -> set[str]:
        database.execute(*statements)
        assert sync(replace(pipeline, writes=writes), lambda: spark).errors == ()
        assert_equal(spark, pipeline, NAME)
        return features(pipeline)

    assert followed() == set()
    changes = (*CHANGES[:-1], CHANGES[-1].format("(3, 'c', 3)"))
    assert followed(*changes) == set()
    assert followed("ALTER TABLE plain ADD tags text[]", "UPDATE plain SET tags = '{a}'") == set()
    assert followed("UPDATE plain SET w = w + 1") == set()
    assert followed("TRUNCATE plain", "INSERT INTO plain VALUES (4, 'd', 4), (5, 'e', 5)") == set()
    assert DeltaTable(pipeline.lake.table(NAME)).to_pyarrow_table().num_rows == 2
    assert followed("ALTER TABLE plain ADD seen timestamp", "UPDATE plain SET seen = now()") == {"timestampNtz"}
    assert followed("ALTER TABLE plain RENAME v TO words") == {"timestampNtz", "columnMapping"}
    assert followed("ALTER TABLE plain DROP w", "ALTER TABLE plain ADD w text DEFAULT 'new'") == {
        "timestampNtz",
        "columnMapping",
    }
    # a handle that was opened before the table had them
    assert followed("UPDATE plain SET words = 'z' WHERE id = 5") == {"timestampNtz", "columnMapping"}
    before = len(protocol_commits(pipeline))
    always_marks = WriteLimits(whole_files_bytes=-1, small_bytes=0, many_files=1000)
    for value in ("once", "twice"):
        update = f"UPDATE plain SET words = '{value}' WHERE id = 4"
        found = followed(update, writes=always_marks)
        assert found == {"timestampNtz", "columnMapping", "deletionVectors"}
    assert len(protocol_commits(pipeline)) == before + 1
    followed("UPDATE plain SET words = 'y' WHERE id = 4", "DELETE FROM plain WHERE id = 5")


@pytest.mark.parametrize(
    "statement",
    [
        pytest.param('ALTER TABLE plain ADD "odd name" int', id="added"),
        pytest.param('ALTER TABLE plain RENAME v TO "v (old)"', id="renamed"),
        pytest.param("ALTER TABLE plain ADD \"odd;name\" text DEFAULT 'x'", id="added with a value"),
    ],
)
def test_a_name_that_parquet_cannot_hold(
    spark: SparkSession, database: Database, tmp_path: Path, statement: str
) -> None:
    database.execute(*PLAIN)
    pipeline = pipeline_of(database, tmp_path / "lake", str(NAME))
    assert sync(pipeline, lambda: spark).errors == ()
    database.execute(statement, "INSERT INTO plain VALUES (7, 'g', 7)")
    assert sync(pipeline, lambda: spark).errors == ()
    assert features(pipeline) == {"columnMapping", "timestampNtz"}
    assert_equal(spark, pipeline, NAME)


def test_a_new_snapshot_adds_what_its_columns_need(
    spark: SparkSession, database: Database, tmp_path: Path, read_by_executors: Callable[..., object]
) -> None:
    database.execute(*PLAIN)
    pipeline = pipeline_of(database, tmp_path / "lake", str(NAME), engine="spark")
    assert sync(pipeline, lambda: spark).errors == ()
    assert features(pipeline) == set()
    database.execute("ALTER TABLE plain ALTER w TYPE timestamp USING 'epoch'", 'ALTER TABLE plain ADD "odd name" int')
    (taken,) = snapshot(Run(pipeline, lambda: spark))
    assert taken.error is None
    assert features(pipeline) == {"timestampNtz", "columnMapping"}
    assert sync(pipeline, lambda: spark).errors == ()
    assert_equal(spark, pipeline, NAME)


def test_what_somebody_has_switched_off_stays_off(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    database.execute(*PLAIN)
    pipeline = pipeline_of(database, tmp_path / "lake", str(NAME), engine="spark")
    assert sync(pipeline, lambda: spark).errors == ()
    path = pipeline.lake.table(NAME)
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'false')")
    database.execute("UPDATE plain SET v = 'x' WHERE id = 1")
    assert sync(replace(pipeline, writes=WriteLimits(whole_files_bytes=-1)), lambda: spark).errors == ()
    assert features(pipeline) == set()
    assert_equal(spark, pipeline, NAME)


OF_EARLY_VERSIONS = {
    "delta.feature.timestampNtz": "supported",
    "delta.columnMapping.mode": "name",
    "delta.enableDeletionVectors": "true",
}
ALWAYS_VECTORS = WriteLimits(whole_files_bytes=-1, small_bytes=0, many_files=1000)


def set_properties(spark: SparkSession, pipeline: Pipeline, properties: Mapping[str, str]) -> None:
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
    spark.sql(f"ALTER TABLE {delta_identifier(pipeline.lake.table(NAME))} SET TBLPROPERTIES ({listed})")


def simplified(spark: SparkSession, pipeline: Pipeline) -> tuple[set[str], dict[str, str]]:
    """What ``maintain`` dropped, and why it kept the others."""
    report = maintain(pipeline, lambda: spark, simpler=True)
    assert report.errors == ()
    told = report.tables[0].simplified
    assert isinstance(told, TableSimplified)
    return {*told.dropped}, {kept.name: kept.reason for kept in told.kept}


def age(folder: Path, days: int) -> None:
    """Delta removes nothing of a log whose files are all of one moment."""
    for file in folder.iterdir():
        os.utime(file, (file.stat().st_mtime - days * 86400,) * 2)


@pytest.fixture
def early(spark: SparkSession, database: Database, tmp_path: Path) -> Pipeline:
    """The table as an early version left it: with all features, a renamed and a dropped column, and deleted rows."""
    database.execute(*PLAIN, "INSERT INTO plain SELECT g, 'v', g FROM generate_series(10, 99) g")
    pipeline = pipeline_of(database, tmp_path / "lake", str(NAME), engine="auto")
    assert sync(pipeline, lambda: spark).errors == ()
    set_properties(spark, pipeline, OF_EARLY_VERSIONS)
    database.execute("ALTER TABLE plain RENAME v TO words", "ALTER TABLE plain DROP w")
    database.execute("UPDATE plain SET words = 'marked' WHERE id = 10")
    assert sync(replace(pipeline, writes=ALWAYS_VECTORS), lambda: spark).errors == ()
    assert features(pipeline) == {"timestampNtz", "columnMapping", "deletionVectors"}
    return pipeline


def test_an_early_table_becomes_simple_in_two_calls(spark: SparkSession, database: Database, early: Pipeline) -> None:
    path = early.lake.table(NAME)
    before = DeltaTable(path).version()
    with pytest.raises(Exception, match="columnMapping"):
        DeltaTable(path).to_pandas()
    dropped, kept = simplified(spark, early)
    assert dropped == {"columnMapping", "deletionVectors"}
    assert features(early) == {*kept} == {"timestampNtz", "checkpointProtection"}
    assert "Delta cannot drop it" in kept["timestampNtz"]
    assert "31 days" in kept["checkpointProtection"]
    assert sorted(DeltaTable(path).to_pandas()["words"].unique()) == ["a", "b", "marked", "v"]
    assert spark.read.format("delta").option("versionAsOf", before).load(path).count() == 92, "cuts name such versions"
    assert_equal(spark, early, NAME)

    database.execute("UPDATE plain SET words = 'x' WHERE id < 20", "DELETE FROM plain WHERE id = 20")
    assert sync(early, lambda: spark).errors == ()
    assert_equal(spark, early, NAME)
    assert simplified(spark, early) == (set(), kept), "its time has not come"
    assert spark.read.format("delta").option("versionAsOf", before).load(path).count() == 92

    age(Path(path, "_delta_log"), 32)
    database.execute("UPDATE plain SET words = 'y' WHERE id = 30")
    assert sync(early, lambda: spark).errors == ()
    dropped, _ = simplified(spark, early)
    assert dropped == {"checkpointProtection"}
    assert features(early) == {"timestampNtz"}
    database.execute("UPDATE plain SET words = 'z' WHERE id = 40", "INSERT INTO plain VALUES (100, 'new')")
    synced_without_spark(early)
    database.execute("ALTER TABLE plain RENAME words TO v", "UPDATE plain SET v = 'renamed' WHERE id = 50")
    assert sync(early, lambda: spark).errors == ()
    assert features(early) == {"timestampNtz", "columnMapping"}, "a column's number has survived"
    assert_equal(spark, early, NAME)


@pytest.mark.nightly
def test_what_a_table_needs_stays(spark: SparkSession, database: Database, early: Pipeline) -> None:
    database.execute('ALTER TABLE plain ADD "odd name" int DEFAULT 3', "ALTER TABLE plain ADD at timestamp")
    assert sync(early, lambda: spark).errors == ()
    large = replace(early, writes=ALWAYS_VECTORS)
    dropped, kept = simplified(spark, large)
    assert dropped == set()
    assert kept["columnMapping"] == kept["timestampNtz"] == "a column needs it"
    assert "would add it again" in kept["deletionVectors"]

    set_properties(spark, early, {"delta.enableDeletionVectors": "false"})
    dropped, kept = simplified(spark, large)
    assert dropped == {"deletionVectors"}
    database.execute("UPDATE plain SET words = 'x' WHERE id < 20")
    assert sync(large, lambda: spark).errors == ()
    assert features(early) == {*kept}, "it is still switched off"
    assert_equal(spark, early, NAME)
