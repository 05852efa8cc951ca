"""The check ``verify``: executed by its own job, with the counts as metadata and nobody's keys."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest

from spark_jobs.sync import sync
from tests.dagster.pipeline_under_dagster import UnderDagster, under_dagster
from tests.fixtures.servers import Database

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.postgres, pytest.mark.spark]


@pytest.fixture
def shop(database: Database, tmp_path: Path, instance: dg.DagsterInstance, spark: SparkSession) -> UnderDagster:
    shop = under_dagster(database, tmp_path / "lake", instance, spark)
    assert sync(shop.component.pipeline, lambda: spark).errors == ()
    return shop


def verified(shop: UnderDagster, **config: Any) -> Mapping[str, dg.AssetCheckEvaluation]:
    """By table, as ``{name}_verify`` records it."""
    op = {f"{shop.name}_verify_tables": {"config": config}}
    job = shop.defs.resolve_job_def(f"{shop.name}_verify")
    result = job.execute_in_process(instance=shop.instance, run_config={"ops": op})
    return {check.asset_key.path[-1]: check for check in result.get_asset_check_evaluations()}


def test_the_job_records_what_differs(shop: UnderDagster) -> None:
    shop.database.execute("INSERT INTO items VALUES (500, 1, 'not followed yet')")
    equal = verified(shop)
    assert {name: check.passed for name, check in equal.items()} == {"orders": True, "items": True}
    assert equal["items"].metadata["source_rows"].value == equal["items"].metadata["lake_rows"].value == 101

    path = f"delta.`{shop.component.pipeline.lake.path}/tables/public/orders`"
    assert shop.spark is not None
    shop.spark.sql(f"INSERT INTO {path} VALUES (4711, 'customer', 1)")
    shop.database.execute("DROP TABLE items")
    told = verified(shop, quick=True)
    orders, items = told["orders"], told["items"]
    assert (orders.passed, orders.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert {name: orders.metadata[name].value for name in ("missing", "extra", "changed")} == {
        "missing": 0,
        "extra": 1,
        "changed": 0,
    }
    assert "4711" not in f"{orders.description} {orders.metadata}"
    assert (items.passed, items.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert items.metadata["verdict"].value == "not compared"


def test_a_run_that_materialises_leaves_it_out(shop: UnderDagster) -> None:
    shop.database.execute("DELETE FROM orders WHERE id = 1")
    request = (shop.tick().run_requests or [])[0]
    assert "verify" not in {check.check_name for check in shop.run(request).get_asset_check_evaluations()}
    key = dg.AssetKey([shop.name, "public", "orders"])
    by_hand = shop.defs.resolve_implicit_global_asset_job_def().get_subset(asset_selection={key})
    result = by_hand.execute_in_process(instance=shop.instance, partition_key=shop.partition_keys()[-1])
    assert result.success
    assert {check.check_name for check in result.get_asset_check_evaluations()} == {
        "watermark_is_last_window",
        "schema_unchanged",
    }
