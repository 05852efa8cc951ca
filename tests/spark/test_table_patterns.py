"""Tables that a pattern finds, written by Spark: in the modes of ``defaults``, and as executors need them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from cdc_assets.configuration.load_pipeline import load_pipeline
from spark_jobs.sync import SyncReport, sync
from spark_jobs.verify.verify import verify
from tests.fixtures.servers import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.postgres, pytest.mark.spark]


def test_tables_come_and_change(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    attributes = {
        "name": database.name,
        "source": {"dsn": database.dsn},
        "lake": {"path": str(tmp_path / "lake")},
        "defaults": {"mode": "history"},
        "exclude": ["public.audit_*"],
        "tables": ["public.*", {"name": "*.items", "mode": "mirror"}],
    }
    file = tmp_path / "pipeline.yaml"
    file.write_text(yaml.safe_dump({"type": "cdc_assets.PostgresCdcComponent", "attributes": attributes}))
    pipeline = load_pipeline(file)

    def brought() -> SyncReport:
        report = sync(pipeline, lambda: spark)
        assert report.errors == ()
        return report

    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, note text)",
        "CREATE TABLE audit_log (id int PRIMARY KEY)",
        "INSERT INTO orders SELECT n, 'a' FROM generate_series(1, 100) n",
    )
    assert [str(taken.name) for taken in brought().snapshots] == ["public.orders"]
    database.execute(
        "CREATE TABLE items (id int PRIMARY KEY) PARTITION BY HASH (id)",
        "CREATE TABLE items_0 PARTITION OF items FOR VALUES WITH (MODULUS 1, REMAINDER 0)",
        "INSERT INTO items SELECT generate_series(1, 50)",
        "UPDATE orders SET note = 'b' WHERE id < 50",
    )
    assert [str(taken.name) for taken in brought().snapshots] == ["public.items"]
    database.execute("UPDATE items SET id = id + 100", "DELETE FROM orders WHERE id > 90", "TRUNCATE audit_log")
    report = brought()
    assert {str(table.name): table.outcome for table in report.tables} == {
        "public.items": "applied",
        "public.orders": "applied",
    }
    verified = verify(pipeline, lambda: spark)
    assert {str(table.name): table.verdict for table in verified.tables} == {
        "public.items": "equal",
        "public.orders": "equal",
    }
    assert spark.read.format("delta").load(f"{pipeline.lake.path}/tables/public/orders").count() == 149
