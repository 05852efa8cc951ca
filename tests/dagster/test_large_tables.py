"""A large table whose snapshot takes longer than a run: each run reads on, ends green, and holds up no other table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from spark_jobs.snapshot import exporter
from tests.dagster.pipeline_under_dagster import UnderDagster, under_dagster
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres


@pytest.fixture
def shop(database: Database, tmp_path: Path, instance: dg.DagsterInstance) -> UnderDagster:
    """``orders`` is large, and has its first snapshot."""
    shop = under_dagster(database, tmp_path / "lake", instance, None, snapshot={"chunk": "256KiB", "parallel": 1})
    database.execute("INSERT INTO orders SELECT i, repeat('c', 90), i FROM generate_series(101, 4000) i")
    for request in shop.tick().run_requests or []:
        assert shop.run(request).success
    return shop


def test_runs_read_on_until_all_is_read(shop: UnderDagster, monkeypatch: pytest.MonkeyPatch) -> None:
    for patience in ("BRIEF", "IN_TURNS"):
        monkeypatch.setattr(exporter, patience, replace(getattr(exporter, patience), reading=0))
    shop.database.execute("ALTER TABLE orders ALTER amount TYPE text", "UPDATE items SET what = 'changed'")
    orders, said = dg.AssetKey([shop.name, "public", "orders"]), []
    for _ in range(30):
        requests = shop.tick().run_requests or []
        if not requests:
            break
        for request in requests:
            assert shop.run(request).success
        assert shop.green("public", "items") == shop.green("change_log")
        if records := shop.instance.fetch_observations(orders, limit=1).records:
            assert records[0].asset_observation is not None
            said.append(records[0].asset_observation.description)
    assert any("chunks of public.orders are read" in str(each) for each in said), said
    assert shop.green("public", "orders") == set(shop.partition_keys())
    assert shop.metadata("snapshot", "public", "orders")["rows"] == 4000
