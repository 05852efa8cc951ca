"""Tables that this process reads and writes for their snapshot, without Spark: as Spark would have written them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest

from spark_jobs.configuration import Pipeline, SparkOptions
from spark_jobs.errors import ConnectionLostError, UnrepresentableError
from spark_jobs.postgres.bulk_read import BulkConnect
from spark_jobs.prepare import prepare
from spark_jobs.run import Run
from spark_jobs.snapshot import planned_table
from spark_jobs.snapshot.range_read import Batches, RangeQuery, read_range
from spark_jobs.snapshot.snapshot import snapshot
from spark_jobs.snapshot.table_read import SnapshotSource
from spark_jobs.sync import sync
from tests.fixtures.no_spark import SparkIsStarted, no_spark
from tests.fixtures.object_store import BUCKET, ObjectStore
from tests.fixtures.pipelines import MakePipeline
from tests.fixtures.row_compare import compare
from tests.fixtures.servers import Database
from tests.fixtures.waiting import wait_until
from tests.lake.stopping import stopped_at
from tests.spark.held_read import held_at_the_last_row, toast_index
from tests.spark.thing_table import ROWS, THING, THING_NAME, commits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

RANGE_BYTES = 128 << 10


def actions(pipeline: Pipeline, kind: str, table: str = "thing") -> Iterator[Any]:
    return (action[kind] for commit in commits(pipeline, table) for action in commit if kind in action)


def data_files(pipeline: Pipeline) -> set[str]:
    return {file.name for file in Path(pipeline.lake.path, "tables", "public", "thing").glob("*.parquet")}


def assert_equal(spark: SparkSession, pipeline: Pipeline) -> None:
    for compared in compare(spark, pipeline, tuple(table.name for table in pipeline.tables or ()), by_spark=True):
        assert compared.equal, compared


@pytest.fixture
def thing(database: Database, make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """A table of several ranges, each read by a task of its own."""
    monkeypatch.setattr(planned_table, "RANGE_BYTES", RANGE_BYTES)
    database.execute(THING, ROWS.format(1, 5000))
    return make_pipeline("public.thing")


def test_a_snapshot_without_spark_is_followed_by_spark(
    thing: Pipeline, database: Database, spark: SparkSession
) -> None:
    assert sync(thing, no_spark).errors == ()
    assert len(data_files(thing)) > 2
    assert_equal(spark, thing)
    database.execute(
        "UPDATE thing SET price = price + 1 WHERE id % 10 = 0",
        "DELETE FROM thing WHERE id = 7",
        ROWS.format(5001, 5010),
    )
    assert sync(thing, lambda: spark).errors == ()
    assert_equal(spark, thing)


def shape_of(pipeline: Pipeline) -> tuple[Any, Any, Any]:
    """Protocol, properties and columns, without what is drawn at random."""
    (protocol,), (meta,) = actions(pipeline, "protocol"), actions(pipeline, "metaData")
    fields = json.loads(meta["schemaString"])["fields"]
    for field in fields:
        assert field["metadata"].pop("delta.columnMapping.physicalName").startswith("col-")
    features = {name: sorted(value) if isinstance(value, list) else value for name, value in protocol.items()}
    return features, {**meta, "schemaString": None, "id": None, "createdTime": None}, fields


def numbers_in_files(pipeline: Pipeline) -> dict[str, int]:
    """The first and the last column's number in a data file: readers may find columns by it."""
    (meta,), added = actions(pipeline, "metaData"), next(actions(pipeline, "add"))
    schema = pq.read_schema(Path(pipeline.lake.path, "tables", "public", "thing", unquote(added["path"])))
    ids = {field.name: int(field.metadata[b"PARQUET:field_id"]) for field in schema}
    fields = json.loads(meta["schemaString"])["fields"]
    names = {field["name"]: field["metadata"]["delta.columnMapping.physicalName"] for field in fields}
    return {name: ids[names[name]] for name in ("id", "odd, name")}


def test_the_table_is_created_as_spark_creates_it(
    thing: Pipeline, spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    assert sync(thing, no_spark).errors == ()
    request.getfixturevalue("read_by_executors")
    beside = replace(thing, lake=replace(thing.lake, path=str(tmp_path / "by_spark")))
    beside = replace(beside, source=replace(thing.source, slot=f"{thing.source.slot}_2"))
    assert sync(beside, lambda: spark).errors == ()
    assert shape_of(thing) == shape_of(beside)
    assert numbers_in_files(thing) == numbers_in_files(beside) == {"id": 1, "odd, name": 13}
    here, there = next(actions(thing, "commitInfo")), next(actions(beside, "commitInfo"))
    assert here["operationMetrics"]["numOutputRows"] == there["operationMetrics"]["numOutputRows"] == "5000"
    assert set(json.loads(here["userMetadata"])) == set(json.loads(there["userMetadata"]))


@pytest.mark.nightly
def test_no_file_is_skipped_that_has_a_wanted_row(thing: Pipeline, spark: SparkSession) -> None:
    """Rows of every file are asked for by each of their values."""
    from pyspark.sql import functions as fn

    assert sync(thing, no_spark).errors == ()
    table = spark.read.format("delta").load(thing.lake.table(THING_NAME))
    rows = table.orderBy("id").collect()
    for row in (rows[0], *rows[1 :: len(rows) // 4], rows[-1]):
        for column, kind in table.dtypes:
            if row[column] is not None:
                found = table.where(fn.col(f"`{column}`") == fn.lit(row[column]).cast(kind)).select("id").collect()
                assert row["id"] in {each["id"] for each in found}, column


def test_again_in_place_of_deletion_vectors_and_renamed_columns(
    thing: Pipeline, database: Database, spark: SparkSession, tmp_path: Path
) -> None:
    assert sync(thing, no_spark).errors == ()
    database.execute("ALTER TABLE thing RENAME text TO words", "ALTER TABLE thing DROP flag")
    assert sync(thing, lambda: spark).errors == ()
    path = thing.lake.table(THING_NAME)
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id % 3 = 0")  # as somebody else may: marks rows as deleted
    assert any(add.get("deletionVector") for add in actions(thing, "add"))
    (taken,) = snapshot(Run(thing, no_spark))
    assert taken.error is None
    assert taken.rows == 5000
    assert_equal(spark, thing)
    version = len(commits(thing)) - 1
    removed = [action["remove"] for action in commits(thing)[-1] if "remove" in action]
    assert any(file.get("deletionVector") for file in removed), "a file is named together with its deleted rows"
    before = spark.read.format("delta").option("versionAsOf", version - 1).load(path)
    assert before.where("id % 3 = 0").count() == 0
    database.execute("UPDATE thing SET words = 'since' WHERE id < 100")
    assert sync(thing, lambda: spark).errors == ()
    assert_equal(spark, thing)


def test_other_columns_are_written_without_spark(thing: Pipeline, database: Database, spark: SparkSession) -> None:
    assert sync(thing, no_spark).errors == ()
    database.execute("ALTER TABLE thing ALTER small TYPE text")
    report = sync(thing, no_spark)
    assert (report.errors, [str(taken.name) for taken in report.snapshots]) == ((), ["public.thing"])
    assert_equal(spark, thing)


def test_a_users_settings_for_new_tables_are_left_to_spark(thing: Pipeline) -> None:
    options = SparkOptions(config=(("spark.databricks.delta.properties.defaults.appendOnly", "false"),))
    with pytest.raises(SparkIsStarted):
        sync(replace(thing, spark=options), no_spark)
    assert data_files(thing) == set()


@pytest.mark.parametrize("options", [SparkOptions(master="local-cluster[1,1,1024]"), SparkOptions(handed_in=True)])
def test_executors_elsewhere_read_large_tables(
    thing: Pipeline, options: SparkOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sync(replace(thing, spark=options), no_spark).errors == (), "small ones are read here"
    monkeypatch.setattr("spark_jobs.snapshot.table_read._SMALL_BYTES", 0)
    with pytest.raises(SparkIsStarted):
        snapshot(Run(replace(thing, spark=options), no_spark))


def test_a_range_that_fails_leaves_nothing(thing: Pipeline, database: Database, spark: SparkSession) -> None:
    database.execute("UPDATE thing SET day = 'infinity' WHERE id = 4000")
    (error,) = sync(thing, no_spark).errors
    assert isinstance(error, UnrepresentableError)
    assert "public.thing: snapshot at " in str(error)
    assert "day" in str(error)
    assert data_files(thing) == set()
    assert commits(thing) == []
    database.execute("UPDATE thing SET day = '2024-01-01' WHERE id = 4000")
    assert sync(thing, no_spark).errors == ()
    assert_equal(spark, thing)


def blocked_reader(database: Database) -> int:
    """The process of the server that waits for a lock while it reads the table."""
    waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ '^COPY .*thing'"
    wait_until(lambda: bool(database.execute(waiting)))
    ((pid,),) = database.execute(waiting)
    assert isinstance(pid, int)
    return pid


@pytest.fixture
def last_row(thing: Pipeline, database: Database, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """The tables are planned, but a row cannot be read until the function is called."""
    database.execute(
        "ALTER TABLE thing ALTER text SET STORAGE EXTERNAL",
        "INSERT INTO thing (id, text) VALUES (100000, repeat('x', 10000))",
    )
    prepare(thing)
    return held_at_the_last_row(database, toast_index(database, "thing"), monkeypatch)


def test_only_a_range_whose_connection_is_lost_is_read_again(
    thing: Pipeline,
    database: Database,
    spark: SparkSession,
    last_row: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ranges: list[str] = []

    def noted(connect: BulkConnect, snapshot_name: str | None, query: RangeQuery) -> Batches:
        ranges.append(query.label)
        return read_range(connect, snapshot_name, query)

    monkeypatch.setattr(planned_table, "SnapshotSource", partial(SnapshotSource, read=noted))
    with ThreadPoolExecutor(1) as background:
        taking = background.submit(snapshot, Run(thing, no_spark))
        lost = blocked_reader(database)
        database.execute(f"SELECT pg_terminate_backend({lost})")
        wait_until(lambda: blocked_reader(database) != lost)
        last_row()
        (taken,) = taking.result(120)
    assert (taken.error, taken.rows) == (None, 5001)
    assert len(set(ranges)) > 2
    assert sorted(ranges) == sorted([*set(ranges), ranges[-1]]), "the last one twice, all others once"
    assert_equal(spark, thing)


def test_a_snapshot_whose_exporter_is_gone_leaves_nothing(
    thing: Pipeline, database: Database, last_row: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with ThreadPoolExecutor(1) as background:
        taking = background.submit(snapshot, Run(thing, no_spark))
        reader = blocked_reader(database)
        ended = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database.name}'"
        exporter = "state = 'idle in transaction' AND query NOT LIKE 'REINDEX%'"
        database.execute(f"{ended} AND {exporter}", f"{ended} AND pid = {reader}")
        with pytest.raises(ConnectionLostError, match="the connection to PostgreSQL was lost"):
            taking.result(120)
    last_row()
    assert data_files(thing) == set()
    monkeypatch.undo()
    assert sync(thing, no_spark).errors == ()


@pytest.mark.parametrize("first", [True, False], ids=["first", "again"])
def test_of_two_processes_that_write_one_table_each_reads_what_the_other_left(
    thing: Pipeline, database: Database, spark: SparkSession, tmp_path: Path, first: bool
) -> None:
    """The one that was stopped before its commit is overtaken: it reads the table once more, and commits then."""
    prepare(thing)
    if not first:
        assert sync(thing, no_spark).errors == ()
    with stopped_at("create_table" if first else "create_write_transaction", partial(_taken, thing), tmp_path) as late:
        database.execute("UPDATE thing SET price = 0 WHERE id = 5", "DELETE FROM thing WHERE id = 6")
        # the stopped process holds the table's lock, as if its session were lost
        database.execute("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'")
        assert sync(thing, no_spark if first else lambda: spark).errors == ()
        assert_equal(spark, thing)
        late.goes_on()
    numbers = [txn["version"] for txn in actions(thing, "txn")]
    assert numbers == list(range(1, len(numbers) + 1)), "one chain of commits"
    assert sync(thing, lambda: spark).errors == ()
    assert_equal(spark, thing)


def _taken(pipeline: Pipeline) -> list[str]:
    return [str(taken.error) for taken in snapshot(Run(pipeline, no_spark))]


def test_on_an_object_store(thing: Pipeline, database: Database, object_store: ObjectStore, tmp_path: Path) -> None:
    stored = replace(thing, lake=replace(thing.lake, path=f"s3a://{BUCKET}/lake"), merge_engine="auto")
    assert sync(stored, no_spark).errors == ()
    (taken,) = snapshot(Run(stored, no_spark))
    assert (taken.error, taken.rows) == (None, 5000)
    database.execute("UPDATE thing SET price = 0 WHERE id < 10")
    (applied,) = sync(stored, no_spark).tables
    assert (applied.error, applied.changes.updates) == (None, 9)
