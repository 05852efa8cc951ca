"""Which of Delta's features a table has: none that it does not need, so that as many readers as possible read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from spark_jobs.configuration import MergeEngine, Pipeline
from spark_jobs.delta.transaction_log import TransactionLog
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.sync import snapshot, sync
from spark_jobs.write_limits import WriteLimits
from tests.at_night import at_night
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
