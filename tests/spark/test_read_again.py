"""A table that needs a re-snapshot: when, how often, what its reader is told, and what happens to the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.apply.apply import apply
from spark_jobs.capture.capture import capture
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import NeedsSnapshotError, SchemaChangeError
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.snapshot import snapshot_budget
from spark_jobs.snapshot.snapshot import snapshot
from spark_jobs.status import pipeline_status
from spark_jobs.sync import sync
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database
from tests.spark.altered_tables import assert_equal, read_again, synced

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]


@pytest.fixture
def orders(spark: SparkSession, database: Database, tmp_path: Path) -> Pipeline:
    """Two tables, synced, with a window after their snapshots."""
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, a int, b int)",
        "CREATE TABLE items (id int PRIMARY KEY, sku text)",
        "INSERT INTO orders SELECT g, g, -g FROM generate_series(1, 20) g",
        "INSERT INTO items SELECT g, 'sku' FROM generate_series(1, 20) g",
    )
    pipeline = pipeline_of(database, tmp_path / "lake", "public.orders", "public.items")
    synced(spark, pipeline)
    database.execute("UPDATE items SET sku = 'seen' WHERE id = 1")
    synced(spark, pipeline)
    return pipeline


ORDERS, ITEMS = QualifiedName("public", "orders"), QualifiedName("public", "items")
REWRITE = "ALTER TABLE orders ALTER a TYPE int USING a + 1"


def test_captured_in_one_run_and_applied_in_another(spark: SparkSession, database: Database, orders: Pipeline) -> None:
    """The log says it: whoever applies needs no source to know."""
    database.execute(REWRITE, "UPDATE items SET sku = 'later'")
    capture(orders)
    report = apply(Run(orders, lambda: spark))
    (error,) = report.errors
    assert isinstance(error, SchemaChangeError)
    assert (
        "public.orders needs a re-snapshot: it was rewritten by DDL, or unlogged for a time (seen with window"
        in str(error)
    )
    assert_equal(spark, orders, ITEMS)
    (trouble,) = [table.error for table in pipeline_status(orders).tables if table.error]
    assert "public.orders needs a re-snapshot" in str(trouble)
    assert set(read_again(synced(spark, orders))) == {"orders"}
    assert_equal(spark, orders, ORDERS, ITEMS)


def test_where_the_configuration_says_so_the_table_stops_instead(
    spark: SparkSession, database: Database, orders: Pipeline
) -> None:
    pipeline = replace(orders, on_rewrite="error")
    database.execute(REWRITE, "UPDATE items SET sku = 'later'")
    for _ in range(2):
        report = sync(pipeline, lambda: spark)
        (error,) = report.errors
        assert isinstance(error, NeedsSnapshotError)
        assert report.snapshots == ()
        assert_equal(spark, pipeline, ITEMS)
    (taken,) = snapshot(Run(pipeline, lambda: spark), [ORDERS])
    assert taken.error is None
    synced(spark, pipeline)
    assert_equal(spark, pipeline, ORDERS, ITEMS)


def test_it_is_noticed_at_once_beside_a_transaction_whose_wal_nobody_flushes(
    spark: SparkSession, database: Database, orders: Pipeline
) -> None:
    """The look at the catalogue ends at WAL that is inserted, the window at WAL that is flushed."""
    database.execute(REWRITE, "UPDATE items SET sku = 'later'")
    with database.connect() as other, other.transaction():
        other.execute("INSERT INTO items VALUES (1000, 'open')")
        report = sync(replace(orders, on_rewrite="error"), lambda: spark)
        (error,) = report.errors
        assert isinstance(error, NeedsSnapshotError)
    assert set(read_again(synced(spark, orders))) == {"orders"}
    assert_equal(spark, orders, ORDERS, ITEMS)


def test_a_table_whose_snapshots_take_too_long_is_told_to_wait(
    spark: SparkSession, database: Database, orders: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a budget, any snapshot takes too long. What one took is known from the lake, by later commits too."""
    for _ in range(4):  # in an hour there is room for many
        database.execute(REWRITE, "UPDATE items SET sku = sku || '.'")
        assert set(read_again(synced(spark, orders))) == {"orders"}
    database.execute("UPDATE orders SET b = b + 1")
    (done,) = [table for table in synced(spark, orders).tables if table.name == ORDERS]
    assert done.state is not None
    assert done.state.cause is not None
    assert done.state.cause.seconds is not None
    assert 0 < done.state.cause.spent + done.state.cause.seconds < 600
    monkeypatch.setattr(snapshot_budget, "_AT_ONCE", timedelta(0))
    monkeypatch.setattr(snapshot_budget, "_SHARE", 1e-9)
    database.execute(REWRITE, "UPDATE items SET sku = sku || '.'")
    report = sync(orders, lambda: spark)
    (error,) = report.errors
    assert "it keeps changing: its last snapshot took 0:0" in str(error)
    assert ", and there is no other before" in str(error)
    assert report.snapshots == ()
    assert_equal(spark, orders, ITEMS)
    (taken,) = snapshot(Run(orders, lambda: spark), [ORDERS])  # whoever asks for it need not wait
    assert taken.error is None
    synced(spark, orders)
    assert_equal(spark, orders, ORDERS, ITEMS)


# each turn ends with a sync; every one of them costs a snapshot of a few rows
FILTER_ALTERED = (
    ("ALTER PUBLICATION {p} SET TABLE r WHERE (keep OR id = 2)",),
    ("ALTER PUBLICATION {p} SET TABLE r WHERE (id > 1)",),
    ("ALTER PUBLICATION {p} SET TABLE r",),
    (
        "ALTER PUBLICATION {p} SET TABLE r WHERE (keep)",
        "ALTER PUBLICATION {p} SET TABLE r",
        "UPDATE r SET v = v || '!' WHERE id = 2",
    ),
)
MANY_ALTERATIONS = (
    ("ALTER TABLE r ADD COLUMN t timestamptz DEFAULT now()",),
    ("ALTER TABLE r ALTER COLUMN n TYPE bigint",),
    ("ALTER TABLE r ADD COLUMN z text DEFAULT clock_timestamp()::text",),
    ("ALTER TABLE r ALTER COLUMN n TYPE numeric(20,0)",),
    ("VACUUM FULL r", "UPDATE r SET n = n + 1"),
)


@pytest.mark.parametrize(
    ("turns", "source"),
    [(FILTER_ALTERED, {}), (MANY_ALTERATIONS, {"plugin": "test_decoding"})],
    ids=["filter altered", "many alterations"],
)
def test_a_small_table_is_read_after_each_of_many_changes(
    spark: SparkSession,
    database: Database,
    tmp_path: Path,
    turns: tuple[tuple[str, ...], ...],
    source: Mapping[str, Any],
) -> None:
    database.execute(
        "CREATE TABLE r (id int PRIMARY KEY, n int, v text, keep boolean NOT NULL)",
        "INSERT INTO r VALUES (1, 1, 'a', true), (2, 2, 'b', false), (3, 3, 'c', true)",
    )
    if not source:
        database.execute(
            "ALTER TABLE r REPLICA IDENTITY FULL", f"CREATE PUBLICATION {database.name} FOR TABLE r WHERE (keep)"
        )
    pipeline = pipeline_of(database, tmp_path / "lake", *(["public.r"] if source else []), **source)
    r = QualifiedName("public", "r")
    taken = len(synced(spark, pipeline).snapshots)
    for turn in turns:
        database.execute(*(statement.format(p=database.name) for statement in turn))
        taken += len(synced(spark, pipeline).snapshots)
        (state,) = [table for table in pipeline_status(pipeline).tables if table.name == r]
        assert state.error is None
        assert_equal(spark, pipeline, r)
    assert taken >= 5


def test_several_changes_before_and_between_two_captures_are_one_snapshot(
    spark: SparkSession, database: Database, orders: Pipeline
) -> None:
    database.execute(REWRITE, "ALTER TABLE orders ADD c text DEFAULT 'x'", "UPDATE orders SET c = 'y' WHERE id = 1")
    capture(orders)
    database.execute("ALTER TABLE orders RENAME b TO d", "UPDATE orders SET c = 'z' WHERE id = 2")
    report = synced(spark, orders)
    assert [table.name for table in report.snapshots] == [ORDERS]
    assert_equal(spark, orders, ORDERS, ITEMS)
