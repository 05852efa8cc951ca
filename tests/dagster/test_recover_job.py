"""A slot that is lost: told by the sensor on the check, and mended by the job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import pytest

from spark_jobs.errors import RECOVER
from tests.dagster.pipeline_under_dagster import under_dagster
from tests.fixtures.servers import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.postgres, pytest.mark.spark]


def test_a_dropped_slot_is_told_and_recovered(
    database: Database, tmp_path: Path, instance: dg.DagsterInstance, spark: SparkSession
) -> None:
    shop = under_dagster(database, tmp_path / "lake", instance, spark)
    assert shop.run((shop.tick().run_requests or [])[0]).success
    database.execute(
        "UPDATE orders SET amount = 7",
        "SELECT pg_drop_replication_slot(current_database())",
        "DELETE FROM items WHERE order_id > 50",
    )
    tick = shop.tick()
    assert not tick.run_requests
    assert str(tick.skip_reason and tick.skip_reason.skip_message).endswith(RECOVER)
    (evaluation,) = tick.asset_events
    assert isinstance(evaluation, dg.AssetCheckEvaluation)
    assert (evaluation.passed, "is gone" in str(evaluation.description)) == (False, True)

    job = shop.defs.resolve_job_def(f"{shop.name}_recover")
    assert job.execute_in_process(instance=instance).success
    shop.assert_equal()
    assert "is gone" in shop.metadata("snapshot", "public", "orders")["snapshot_reason"]

    database.execute("UPDATE orders SET amount = 8")
    assert shop.run((shop.tick().run_requests or [])[0]).success
    shop.assert_equal()
    assert shop.green("public", "orders") == shop.green("change_log") == set(shop.partition_keys())
