"""A table that cannot go on fails its own asset; the others, and the slot, go on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import pytest
from pydantic import SecretStr

from spark_jobs.capture.capture import capture
from spark_jobs.snapshot import exporter
from spark_jobs.snapshot.exporter import Patience
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


def test_a_table_whose_snapshot_waits_for_a_transaction_fails_nothing(
    shop: UnderDagster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the transaction is WAL, for which the next tick requests a run: that takes the snapshot."""
    for patience in ("BRIEF", "IN_TURNS"):
        monkeypatch.setattr(exporter, patience, Patience(0))
    items = dg.AssetKey([shop.name, "public", "items"])
    before = shop.green("public", "items")
    with shop.database.connect() as session, session.transaction():
        session.execute("CREATE TABLE elsewhere (id int)")
        shop.database.execute(
            "ALTER TABLE items ALTER what TYPE text USING what || '!'", "UPDATE orders SET amount = 7"
        )
        request = (shop.tick().run_requests or [])[0]
        result = shop.run(request)
        assert result.success
        shop.assert_equal(["public.orders"])
        assert shop.green("public", "orders") == shop.green("change_log") == set(shop.partition_keys())
        assert shop.green("public", "items") == before
        said = f"while the transaction of server process {session.info.backend_pid} (idle in transaction), open for "
        observed = shop.instance.fetch_observations(items, limit=1).records[0].asset_observation
        assert observed is not None
        assert observed.description is not None
        assert observed.description.startswith("public.items waits for its snapshot: ")
        assert said in observed.description
        (check,) = [each for each in result.get_asset_check_evaluations() if each.asset_key == items]
        assert (check.passed, check.severity, said in str(check.description)) == (
            False,
            dg.AssetCheckSeverity.WARN,
            True,
        )
    monkeypatch.undo()
    assert shop.run((shop.tick().run_requests or [])[0]).success
    shop.assert_equal()
    assert shop.green("public", "items") == set(shop.partition_keys())


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
