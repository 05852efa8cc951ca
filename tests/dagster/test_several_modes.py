"""One source table in several modes: an asset each, with one source above them. No Spark."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest
from deltalake import DeltaTable

from tests.dagster.pipeline_under_dagster import UnderDagster, under_dagster
from tests.dagster.shop_component import body, keys_and_deps, loaded
from tests.fixtures.servers import Database

BOTH = {"name": "public.orders", "modes": ["mirror", "history"]}
HISTORY = ("public", "orders__history")


@pytest.mark.usefixtures("shop_dsn")
def test_each_is_an_asset() -> None:
    key = {"key": "lake/{{ table.table_name }}"}
    component, defs = loaded(body(tables=[{**BOTH, "translation": key}], defaults={"mode": "append"}))
    assets = keys_and_deps(defs)
    assert assets["lake/orders__history"] == {"shop/change_log", "shop/snapshot/public/orders__history"}
    assert assets["lake/orders"] == {"shop/change_log", "shop/snapshot/public/orders"}
    assert assets["shop/snapshot/public/orders__history"] == {"postgres/shopdb/public/orders"}
    assert assets["shop/change_log"] == {"postgres/shopdb/public/orders"}
    specs = {spec.key.to_user_string(): spec for spec in defs.resolve_all_asset_specs()}
    assert specs["lake/orders__history"].metadata["dagster/uri"].endswith("/tables/public/orders__history")
    assert "PostgreSQL table public.orders " in str(specs["lake/orders__history"].description)
    assert [table.mode for table in component.pipeline.tables or ()] == ["mirror", "history"]


@pytest.mark.usefixtures("shop_dsn")
def test_an_entry_replaces_what_the_defaults_say() -> None:
    component, _ = loaded(
        body(tables=["public.a", {"name": "public.b", "mode": "append"}], defaults={"modes": ["history"]})
    )
    assert [(str(table.name), table.mode) for table in component.pipeline.tables or ()] == [
        ("public.a", "history"),
        ("public.b", "append"),
    ]


def requested(shop: UnderDagster) -> dg.RunRequest:
    return (shop.tick().run_requests or [])[0]


def rows(shop: UnderDagster, relname: str) -> list[dict[str, object]]:
    return list(DeltaTable(str(shop.lake / "tables" / "public" / relname)).to_pyarrow_table().to_pylist())


@pytest.mark.postgres
def test_runs_of_all_and_of_one(database: Database, tmp_path: Path, instance: dg.DagsterInstance) -> None:
    shop = under_dagster(database, tmp_path / "lake", instance, None, tables=[BOTH, "public.items"])
    assert shop.run(requested(shop)).success
    database.execute("UPDATE orders SET amount = 0 WHERE id < 4", "DELETE FROM orders WHERE id = 5")
    assert shop.run(requested(shop)).success
    assert len(rows(shop, "orders")) == 99
    assert len(rows(shop, "orders__history")) == 103
    assert shop.green(*HISTORY) == shop.green("public", "orders") == set(shop.partition_keys())
    last = shop.partition_keys()[-1]
    known = shop.metadata(*HISTORY, partition=last)
    assert (known["updates"], known["deletes"], known["dagster/row_count"]) == (3, 1, 103)
    source = dg.AssetKey(["postgres", database.name, "public", "orders"])
    assert known["dagster/column_lineage"].deps_by_column["amount"][0].asset_key == source
    assert "id" in {column.name for column in known["dagster/column_schema"].columns}
    check = dg.AssetCheckKey(dg.AssetKey([shop.name, *HISTORY]), "watermark_is_last_window")
    ((found, *_),) = [instance.event_log_storage.get_asset_check_execution_history(check, limit=1)]
    assert found.evaluation is not None
    assert "0 changes up to window" in str(found.evaluation.description)
    # one of them alone
    database.execute("DELETE FROM orders WHERE id = 6")
    request = requested(shop)
    keys = [shop.component.asset_specs.change_log.key, dg.AssetKey([shop.name, *HISTORY])]
    assert shop.run(request._replace(asset_selection=keys)).success
    assert len([row for row in rows(shop, "orders__history") if row["_valid_to_lsn"] is None]) == 98
    assert len(rows(shop, "orders")) == 99
