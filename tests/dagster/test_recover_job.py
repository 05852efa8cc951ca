"""A slot that is lost: the tick fails and the check says so, the job repairs it, no lost window is shown as done."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg
import pytest

from cdc_assets.automation.run_planning import range_tags
from spark_jobs.capture.capture import capture
from spark_jobs.logicalrep.lsn import Window
from spark_jobs.recover import recover
from tests.at_night import at_night
from tests.dagster.pipeline_under_dagster import UnderDagster, typed_in_the_ui

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

DROP = "SELECT pg_drop_replication_slot(current_database())"


def health(shop: UnderDagster) -> list[dg.AssetCheckEvaluation]:
    """The evaluations of ``slot_health`` that are stored, newest first."""
    key = dg.AssetCheckKey(dg.AssetKey([shop.name, "change_log"]), "slot_health")
    records = shop.instance.event_log_storage.get_asset_check_execution_history(key, limit=20)
    return [record.evaluation for record in records if record.evaluation is not None]


def test_a_dropped_slot_makes_the_tick_fail_and_is_recovered(shop: UnderDagster) -> None:
    shop.tick()
    before = len(health(shop))
    shop.database.execute("UPDATE orders SET amount = 7", DROP, "DELETE FROM items WHERE order_id > 50")
    for _ in range(2):  # the second is no news, and is red too
        with pytest.raises(dg.Failure, match=rf"is gone.*\nhint: the job `{shop.name}_recover` begins a new chapter"):
            shop.tick()
    assert len(health(shop)) == before + 1
    told = health(shop)[0]
    assert (told.passed, told.severity, "is gone" in str(told.description)) == (
        False,
        dg.AssetCheckSeverity.ERROR,
        True,
    )
    assert "postgres-cdc" not in str(told.description)

    job = shop.defs.resolve_job_def(f"{shop.name}_recover")
    assert job.execute_in_process(instance=shop.instance).success
    shop.assert_equal()
    assert "is gone" in shop.metadata("snapshot", "public", "orders")["snapshot_reason"]

    shop.database.execute("UPDATE orders SET amount = 8")
    assert shop.run((shop.tick().run_requests or [])[0]).success
    assert health(shop)[0].passed
    shop.assert_equal()
    assert shop.green("public", "orders") == shop.green("change_log") == set(shop.partition_keys())


@pytest.mark.parametrize("by", ["the job", at_night("the command")])
def test_a_lost_window_is_never_shown_as_materialised(shop: UnderDagster, spark: SparkSession, by: str) -> None:
    """Three partitions when the slot is dropped: one is done, one is landed and not applied, one is only requested."""
    pipeline = shop.component.pipeline
    shop.database.execute("UPDATE orders SET amount = 1 WHERE id = 1")
    assert shop.run((shop.tick().run_requests or [])[0]).success
    shop.database.execute("UPDATE orders SET amount = 2 WHERE id = 2")
    shop.tick()  # its run vanishes, after the command has landed what it asked for
    capture(pipeline)
    shop.database.execute("UPDATE orders SET amount = 3 WHERE id = 3")
    requested = typed_in_the_ui(shop)
    shop.database.execute("DELETE FROM items WHERE order_id > 50", DROP)
    done, landed, _ = shop.partition_keys()
    assert "is gone" in refused(shop, requested)
    assert states(shop) == {done: GREEN, landed: MISSING, requested: MISSING}

    if by == "the job":
        assert shop.defs.resolve_job_def(f"{shop.name}_recover").execute_in_process(instance=shop.instance).success
        assert states(shop) == {done: GREEN, landed: MISSING}
    else:
        assert recover(pipeline, lambda: spark).errors == ()
        assert f"the window {Window.parse(requested)} was lost" in refused(shop, requested)
    shop.database.execute("UPDATE orders SET amount = 4 WHERE id = 4")
    key = typed_in_the_ui(shop)
    assert shop.run(dg.RunRequest(tags=range_tags((key, key)))).success

    shop.assert_equal()
    assert states(shop) == {done: GREEN, landed: ("materialised", "missing"), key: GREEN}
    [observed] = observed_as_lost(shop)
    assert (observed["windows_lost"], str(Window.parse(requested)) in str(observed["lost"])) == (1, True)
    assert f"the window {Window.parse(landed)} is of an earlier chapter" in refused(shop, landed)
    assert states(shop) == {done: GREEN, landed: ("materialised", "missing"), key: GREEN}


GREEN = ("materialised", "materialised")
MISSING = ("missing", "missing")


def states(shop: UnderDagster) -> dict[str, tuple[str, str]]:
    """The state of each partition on the change log and on the tables, which have the same."""
    log, orders, items = (shop.green(*asset) for asset in (("change_log",), ("public", "orders"), ("public", "items")))
    assert orders == items
    shown = ("missing", "materialised")
    return {key: (shown[key in log], shown[key in orders]) for key in shop.partition_keys()}


def refused(shop: UnderDagster, key: str) -> str:
    """What a run over this partition fails with."""
    result = shop.run(dg.RunRequest(tags=range_tags((key, key))), raise_on_error=False)
    assert not result.success
    failure = result.get_step_failure_events()[0].step_failure_data.user_failure_data
    assert failure is not None
    return str(failure.description)


def observed_as_lost(shop: UnderDagster) -> list[dict[str, object]]:
    records = shop.instance.fetch_observations(dg.AssetKey([shop.name, "change_log"]), limit=50).records
    metadata = [record.asset_observation.metadata for record in records if record.asset_observation is not None]
    return [{name: value.value for name, value in each.items()} for each in metadata if "windows_lost" in each]
