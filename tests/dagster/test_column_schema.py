"""What Dagster shows of a table's columns: the source's comments, types and constraints, masks, keys, lineage."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from tests.dagster.pipeline_under_dagster import UnderDagster, under_dagster
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres


def changed(shop: UnderDagster, *statements: str) -> None:
    shop.database.execute(*statements)
    [request] = shop.tick().run_requests or []
    assert shop.run(request).success


def columns(shop: UnderDagster, table: str) -> dict[str, dg.TableColumn]:
    return {column.name: column for column in shop.metadata("public", table)["dagster/column_schema"].columns}


def test_columns_are_described_as_the_source_describes_them(
    database: Database, tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSTGRES_CDC_MASK_SALT", "s" * 32)
    tables = [{"name": "public.orders", "mask": {"customer": "sha256"}}, {"name": "public.items", "mode": "history"}]
    shop = under_dagster(database, tmp_path / "lake", instance, None, tables=tables)
    changed(
        shop,
        "COMMENT ON TABLE orders IS 'what was sold'",
        "ALTER TABLE orders ADD at timestamptz NOT NULL DEFAULT now(), ADD number text UNIQUE",
        "COMMENT ON COLUMN orders.amount IS 'in euros'",
        'ALTER TABLE items ADD CONSTRAINT "of order" FOREIGN KEY (order_id) REFERENCES orders, ALTER what SET NOT NULL',
    )
    changed(shop, "UPDATE orders SET amount = 1 WHERE id = 1", "UPDATE items SET what = 'x' WHERE order_id = 1")
    orders, items = columns(shop, "orders"), columns(shop, "items")
    assert {name: (column.type, column.tags["postgres/type"]) for name, column in orders.items()} == {
        "id": ("bigint", "bigint"),
        "customer": ("string", "text"),
        "amount": ("decimal(10,2)", "numeric(10,2)"),
        "at": ("timestamp", "timestamp with time zone"),
        "number": ("string", "text"),
    }
    assert [name for name, column in orders.items() if "postgres/masked" in column.tags] == ["customer"]
    assert {name: column.description for name, column in orders.items() if column.description} == {"amount": "in euros"}
    assert {name for name, column in orders.items() if not column.constraints.nullable} == {"id", "customer", "at"}
    assert {name for name, column in orders.items() if column.constraints.unique} == {"id", "number"}
    # earlier versions of a row have its key, too, and may have values from before the constraint
    assert {name for name, column in items.items() if not column.constraints.nullable} == {"order_id", "line"}
    assert not any(column.constraints.unique for column in items.values())
    assert items["order_id"].constraints.other == ["key", "references public.orders (id)"]
    assert "postgres/type" not in items["_valid_from"].tags
    [key] = shop.metadata("public", "items")["foreign_keys"].records
    assert key.data == {"columns": "order_id", "references": "public.orders (id)"}
    assert "foreign_keys" not in shop.metadata("public", "orders")
    lineage = shop.metadata("public", "items")["dagster/column_lineage"].deps_by_column
    assert set(lineage) == {"order_id", "line", "what"}
    assert [(each.asset_key.path[-2:], each.column_name) for each in lineage["what"]] == [(["public", "items"], "what")]

    changed(shop, "COMMENT ON COLUMN orders.amount IS 'in cents'", "COMMENT ON TABLE orders IS NULL")
    assert columns(shop, "orders")["amount"].description == "in cents"
    assert "comment" not in shop.metadata("public", "orders")
    assert shop.metadata("public", "orders")["outcome"] == "applied"
