"""Two processes on one lake, cron beside Dagster: neither writes a row twice, each table has one writer at a time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pydantic import SecretStr

from spark_jobs.apply.apply import apply
from spark_jobs.apply.apply_tables import apply_tables
from spark_jobs.apply.table_range import TableRange
from spark_jobs.capture.capture import capture
from spark_jobs.errors import LakeError
from spark_jobs.lake.cuts import latest_cut
from spark_jobs.postgres.write_guard import write_guard
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.snapshot.snapshot import snapshot
from spark_jobs.sync import sync
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database
from tests.spark.followed_pipeline import Followed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

ORDERS, ITEMS = QualifiedName("public", "orders"), QualifiedName("public", "items")


@pytest.fixture
def shop(spark: SparkSession, database: Database, tmp_path: Path) -> Followed:
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, status text)",
        "CREATE TABLE items (id int PRIMARY KEY, sku text)",
        "INSERT INTO orders SELECT g, 'new' FROM generate_series(1, 20) g",
        "INSERT INTO items SELECT g, 'sku' FROM generate_series(1, 20) g",
    )
    pipeline = pipeline_of(database, tmp_path / "lake", "public.orders", "public.items", engine="spark")
    assert sync(pipeline, lambda: spark).errors == ()
    return Followed(spark, database, pipeline, (ORDERS, ITEMS))


def test_what_another_one_has_applied_since_is_not_applied_again(shop: Followed) -> None:
    """The state was read, then the other one applied a part of the range: inserts would be there twice, and a row
    that came and went in the whole range would stay."""
    shop.database.execute("INSERT INTO orders VALUES (100, 'came')", "INSERT INTO items VALUES (100, 'came')")
    capture(shop.pipeline)
    stale = [shop.state(name) for name in shop.names]
    shop.apply()
    shop.database.execute("INSERT INTO orders VALUES (101, 'came')", "DELETE FROM items WHERE id = 100")
    capture(shop.pipeline)
    for table in apply_tables([TableRange(shop.run, state, shop.markers) for state in stale]):
        last = shop.markers[-1].ordinal
        assert (table.outcome, table.first, table.last) == ("applied", last, last), "only what the other one left"
    shop.assert_equal()


def test_a_table_snapshotted_again_since_goes_on_from_there(shop: Followed) -> None:
    shop.database.execute("UPDATE orders SET status = 'x'")
    capture(shop.pipeline)
    stale = shop.state(ORDERS)
    (taken,) = snapshot(shop.run, [ORDERS])
    assert taken.error is None
    (left,) = apply_tables([TableRange(shop.run, stale, shop.markers)])
    assert (left.outcome, left.state) == ("already applied", taken.state)
    assert sync(shop.pipeline, lambda: shop.spark).errors == ()
    shop.assert_equal()


def test_a_table_that_another_one_writes_is_left_alone_and_the_others_go_on(shop: Followed) -> None:
    shop.database.execute("UPDATE orders SET status = 'x'", "UPDATE items SET sku = 'x'")
    with write_guard(shop.pipeline.source) as other, other.table(ORDERS):
        report = sync(shop.pipeline, lambda: shop.spark)
        (error,) = report.errors
        assert isinstance(error, LakeError)
        assert "public.orders was left alone: another process is writing its Delta table" in str(error)
        outcomes = {table.name: table.outcome for table in report.tables}
        assert outcomes == {ORDERS: "stopped", ITEMS: "applied"}
        (untaken,) = snapshot(shop.run, [ORDERS])
        assert "was left alone" in str(untaken.error)
        cut = latest_cut(shop.pipeline.lake)
        assert cut is not None
        assert cut.table(ORDERS) is None, "no cut shows a table that is behind"
    assert sync(shop.pipeline, lambda: shop.spark).errors == ()
    shop.assert_equal()


def test_a_lock_goes_with_its_session(shop: Followed) -> None:
    with write_guard(shop.pipeline.source) as other, other.table(ORDERS):
        session = other.connect()
        assert session is not None
        pid = session.info.backend_pid
        shop.database.execute(f"SELECT pg_terminate_backend({pid}, 10000)")
        with write_guard(shop.pipeline.source) as mine, mine.table(ORDERS):
            assert mine.connect() is not None


def test_landed_windows_are_applied_while_the_source_is_down(shop: Followed, caplog: pytest.LogCaptureFixture) -> None:
    shop.database.execute("UPDATE orders SET status = 'x'")
    capture(shop.pipeline)
    unreachable = replace(shop.pipeline.source, dsn=SecretStr("host=127.0.0.1 port=1 connect_timeout=2"))
    assert apply(Run(replace(shop.pipeline, source=unreachable), lambda: shop.spark)).errors == ()
    assert "nothing keeps a second process from writing" in caplog.text
    shop.assert_equal()
