"""A large table whose snapshot takes longer than a run: each run reads on, ends green, and holds up no other table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from cdc_assets import snapshot_observation
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
    monkeypatch.setattr(snapshot_observation, "_SECONDS", 0.0)
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
    assert any("public.orders is read in chunks: 1 of " in str(each) for each in said), said
    figures = [numbers for _, numbers in observations(shop)]
    read, chunks = [each["chunks_read"] for each in figures], figures[0]["chunks"]
    assert read == sorted(read)
    assert 1 <= read[0] <= 3
    assert chunks - 3 <= read[-1] < chunks
    assert shop.green("public", "orders") == set(shop.partition_keys())
    assert shop.metadata("snapshot", "public", "orders")["rows"] == 4000


def test_a_run_shows_what_it_reads(shop: UnderDagster, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it goes on: how much, how fast, and how long the rest takes."""
    monkeypatch.setattr(snapshot_observation, "_SECONDS", 0.0)
    shop.database.execute("ALTER TABLE orders ALTER amount TYPE text")
    for request in shop.tick().run_requests or []:
        assert shop.run(request).success
    seen = observations(shop)
    read, chunks = [numbers["chunks_read"] for _, numbers in seen], seen[0][1]["chunks"]
    assert read == list(range(2, chunks + 1))
    assert all(numbers["bytes_per_second"] > 0 for _, numbers in seen)
    assert "seconds_left" in seen[0][1]
    assert seen[0][0].startswith(f"public.orders is read in chunks: 2 of {chunks} chunks, 0:00:0")
    assert shop.metadata("snapshot", "public", "orders")["rows"] == 4000


def observations(shop: UnderDagster) -> list[tuple[str, dict[str, int]]]:
    """Of the large table, in order: what is said, and the numbers."""
    records = shop.instance.fetch_observations(dg.AssetKey([shop.name, "public", "orders"]), limit=100).records
    found = [record.asset_observation for record in reversed(records) if record.asset_observation is not None]
    return [
        (
            str(each.description),
            {name: value.value for name, value in each.metadata.items() if isinstance(value.value, int)},
        )
        for each in found
    ]
