"""A table is altered while one thread takes its snapshot and another one lands a window, as in ``follow``."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.capture import capture as capture_module
from spark_jobs.capture.capture import capture
from spark_jobs.capture.catalogue_look import look_at_catalogue
from spark_jobs.capture.continuity import check_identity
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.configuration import MergeEngine, Pipeline
from spark_jobs.errors import AlteredWhileReadError
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.snapshot import snapshot_tables, snapshot_work, table_read
from spark_jobs.snapshot.snapshot import snapshot
from spark_jobs.snapshot.snapshot_tables import write_snapshot
from spark_jobs.spark.session_conf import RUNTIME_CONF
from spark_jobs.sync import sync
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database
from tests.spark.altered_tables import assert_equal, read_again, synced

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

ORDERS = QualifiedName("public", "orders")
RENAME_LABEL = "ALTER TYPE mood RENAME VALUE 'good' TO 'fine'"  # no row of it is sent
_SECONDS = 120


@pytest.fixture
def orders(spark: SparkSession, database: Database, tmp_path: Path) -> Pipeline:
    database.execute(
        "CREATE TYPE mood AS ENUM ('good', 'bad')",
        "CREATE TABLE orders (id int PRIMARY KEY, a int, m mood)",
        "INSERT INTO orders SELECT g, g, 'good' FROM generate_series(1, 20) g",
    )
    pipeline = pipeline_of(database, tmp_path / "lake", "public.orders")
    synced(spark, pipeline)
    database.execute("UPDATE orders SET a = 100 WHERE id = 1")
    return pipeline


def test_ddl_after_a_snapshot_seen_with_a_window_that_ends_before_it(
    spark: SparkSession, database: Database, orders: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the window is fixed, then the snapshot is taken, then the table is altered, then the window's look at
    the catalogue sees it."""

    def late(*arguments: object) -> object:
        patched.setattr(capture_module, "look_at_catalogue", look_at_catalogue)
        (taken,) = snapshot(Run(orders, lambda: spark), [ORDERS])
        assert taken.error is None
        database.execute(RENAME_LABEL)
        return look_at_catalogue(*arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(capture_module, "look_at_catalogue", late)
        capture(orders)
    assert set(read_again(synced(spark, orders))) == {"orders"}
    assert_equal(spark, orders, ORDERS)


def test_ddl_after_a_snapshot_that_is_ahead_of_the_log(
    spark: SparkSession, database: Database, orders: Pipeline
) -> None:
    """The first windows that are landed then end before the snapshot, and only their look sees the DDL."""
    pipeline = replace(orders, windows=replace(orders.windows, max_bytes=64))
    for _ in range(3):
        database.execute("UPDATE orders SET a = a + 1 WHERE id < 9")
    (taken,) = snapshot(Run(pipeline, lambda: spark), [ORDERS])
    database.execute(RENAME_LABEL, "UPDATE orders SET a = a WHERE id = 2")
    landed = capture(pipeline).landed
    (seen,) = [
        marker for marker in landed if marker.catalogue and (marker.catalogue.changed or marker.catalogue.moved)
    ][:1]
    assert seen.window.hi <= taken.lsn
    assert set(read_again(synced(spark, pipeline))) == {"orders"}
    assert_equal(spark, orders, ORDERS)


def test_ddl_seen_with_a_window_that_is_landed_while_the_snapshot_is_read(
    spark: SparkSession, database: Database, orders: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same, but the window is in the log before the snapshot is: that must not count it as covered."""
    exported, landed = threading.Event(), threading.Event()

    def late(*arguments: object) -> object:
        patched.setattr(capture_module, "look_at_catalogue", look_at_catalogue)
        reader.start()
        assert exported.wait(_SECONDS)
        database.execute(RENAME_LABEL)
        return look_at_catalogue(*arguments)  # type: ignore[arg-type]

    def meanwhile(*arguments: object) -> None:
        exported.set()
        assert landed.wait(_SECONDS)
        check_identity(*arguments)  # type: ignore[arg-type]

    reader = threading.Thread(target=lambda: snapshot(Run(orders, lambda: spark), [ORDERS]))
    with monkeypatch.context() as patched:
        patched.setattr(capture_module, "look_at_catalogue", late)
        patched.setattr(snapshot_work, "check_identity", meanwhile)
        before = ChangeLog(orders.lake.change_log).checkpoint()
        capture(orders)
        landed.set()
        reader.join()
    after = ChangeLog(orders.lake.change_log).checkpoint()
    assert before is not None
    assert after is not None
    assert after.ordinal > before.ordinal
    assert set(read_again(synced(spark, orders))) == {"orders"}
    assert_equal(spark, orders, ORDERS)


@pytest.mark.parametrize(
    ("engine", "b", "reader"),
    [
        ("auto", "text", "driver"),
        ("spark", "text", "driver"),
        ("auto", "int", "driver"),
        ("spark", "text", "executors"),
        ("spark", "text", "executors, whole tracebacks"),
    ],
)
def test_names_of_columns_that_are_swapped_before_the_rows_are_read(
    spark: SparkSession,
    database: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    engine: MergeEngine,
    b: str,
    reader: str,
) -> None:
    """Columns are read by their names: the rows would have each one's values in the other, and be renamed later."""
    database.execute(
        f"CREATE TABLE orders (id int PRIMARY KEY, a text, b {b})",
        "INSERT INTO orders SELECT g, 'a' || g, g FROM generate_series(1, 20) g",
    )
    pipeline = pipeline_of(database, tmp_path / "lake", "public.orders", engine=engine)

    def late(*arguments: object) -> object:
        patched.setattr(snapshot_tables, "write_snapshot", write_snapshot)
        database.execute(
            "BEGIN; ALTER TABLE orders RENAME a TO c; ALTER TABLE orders RENAME b TO a;"
            " ALTER TABLE orders RENAME c TO b; ALTER TABLE orders ADD d int; COMMIT"
        )
        return write_snapshot(*arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(snapshot_tables, "write_snapshot", late)
        if reader != "driver":
            patched.setattr(table_read, "_SMALL_BYTES", -1)
        if "tracebacks" in reader:
            whole = {"spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false"}
            patched.setattr("spark_jobs.spark.session.RUNTIME_CONF", {**RUNTIME_CONF, **whole})
        (error,) = sync(pipeline, lambda: spark).errors
    assert isinstance(error, AlteredWhileReadError)
    assert "was rewritten by DDL, or its columns were renamed, while its snapshot was read" in str(error)
    synced(spark, pipeline)
    assert_equal(spark, pipeline, ORDERS)
