"""A table that cannot go on fails its own asset; the others, and the slot, go on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import pytest
from pydantic import SecretStr

from spark_jobs.capture.capture import capture
from tests.dagster.pipeline_under_dagster import UnderDagster, under_dagster
from tests.fixtures.servers import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.postgres, pytest.mark.spark]


@pytest.fixture
def shop(database: Database, tmp_path: Path, instance: dg.DagsterInstance, spark: SparkSession) -> UnderDagster:
    shop = under_dagster(database, tmp_path / "lake", instance, spark)
    assert shop.run((shop.tick().run_requests or [])[0]).success
    return shop


def test_a_dropped_table_fails_alone(shop: UnderDagster) -> None:
    shop.database.execute("DROP TABLE items", "UPDATE orders SET amount = 7")
    request = (shop.tick().run_requests or [])[0]
    result = shop.run(request, raise_on_error=False)
    assert not result.success
    failures = [event.step_failure_data.error for event in result.all_events if event.is_step_failure]
    (failure,) = [error for error in failures if error is not None]
    assert "there is no table public.items" in failure.to_string()
    shop.assert_equal(["public.orders"])
    assert shop.green("public", "orders") == shop.green("change_log") == set(shop.partition_keys())
    assert shop.green("public", "items") == set()


def test_landed_windows_are_applied_while_the_source_is_down(shop: UnderDagster) -> None:
    shop.database.execute("UPDATE orders SET amount = 7")
    shop.tick()
    capture(shop.component.pipeline)
    key = dg.AssetKey([shop.name, "public", "orders"])
    shop.component.source.dsn = SecretStr("host=127.0.0.1 port=1 dbname=nowhere connect_timeout=2")
    away = shop.component.definitions()
    result = dg.materialize(
        [away.resolve_assets_def(key)],
        selection=dg.AssetSelection.assets(key),
        partition_key=shop.partition_keys()[-1],
        instance=shop.instance,
    )
    assert result.success
    shop.assert_equal(["public.orders"])
