"""The check ``schema_unchanged`` on a table: what DDL did to it in the run, and what the configuration refuses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import pytest

from tests.dagster.pipeline_under_dagster import UnderDagster, under_dagster
from tests.fixtures.servers import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.postgres, pytest.mark.spark]


def evaluated(shop: UnderDagster, *, raise_on_error: bool = True) -> dict[str, dg.AssetCheckEvaluation]:
    """By table, as the next run evaluates it."""
    [request] = shop.tick().run_requests or []
    result = shop.run(request, raise_on_error=raise_on_error)
    return {
        check.asset_key.path[-1]: check
        for check in result.get_asset_check_evaluations()
        if check.check_name == "schema_unchanged"
    }


def test_ddl_is_a_warning_of_its_run(
    database: Database, tmp_path: Path, instance: dg.DagsterInstance, spark: SparkSession
) -> None:
    """The resource's session is the test's own: Spark has one in a process."""
    shop = under_dagster(database, tmp_path / "lake", instance, spark)
    shop.run((shop.tick().run_requests or [])[0])
    database.execute(
        "ALTER TABLE orders ADD note text",
        "INSERT INTO orders VALUES (1000, 'new', 1, 'x')",
        "ALTER TABLE items ALTER what TYPE text USING upper(what)",
    )
    checks = evaluated(shop)
    assert {name: (check.passed, check.severity) for name, check in checks.items()} == {
        "orders": (False, dg.AssetCheckSeverity.WARN),
        "items": (False, dg.AssetCheckSeverity.WARN),
    }
    assert checks["orders"].description == "note string was added"
    assert "needs a re-snapshot: it was rewritten by DDL" in str(checks["items"].description)
    database.execute("UPDATE orders SET note = 'y' WHERE id = 1000")
    assert all(check.passed for check in evaluated(shop).values())


def test_columns_that_are_ignored_or_kept(
    database: Database, tmp_path: Path, instance: dg.DagsterInstance, spark: SparkSession
) -> None:
    policy = {"add": "ignore", "drop": "keep"}
    shop = under_dagster(database, tmp_path / "lake", instance, spark, on_schema_change=policy)
    shop.run((shop.tick().run_requests or [])[0])
    database.execute("ALTER TABLE orders ADD note text, DROP customer", "DELETE FROM orders WHERE id = 1")
    checks = evaluated(shop)
    assert (checks["orders"].passed, checks["orders"].severity) == (False, dg.AssetCheckSeverity.WARN)
    assert checks["orders"].description == "note was added and is ignored; customer was dropped and is kept"
    database.execute("DELETE FROM orders WHERE id = 2")
    assert all(check.passed for check in evaluated(shop).values())


def test_what_is_refused_is_an_error(
    database: Database, tmp_path: Path, instance: dg.DagsterInstance, spark: SparkSession
) -> None:
    shop = under_dagster(database, tmp_path / "lake", instance, spark, on_schema_change={"add": "stop"})
    shop.run((shop.tick().run_requests or [])[0])
    database.execute("ALTER TABLE orders ADD note text", "DELETE FROM items WHERE order_id = 1")
    checks = evaluated(shop, raise_on_error=False)
    assert (checks["orders"].passed, checks["orders"].severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert "column note was added, and on_schema_change says add: stop" in str(checks["orders"].description)
    snapshot = f"materialise the asset {shop.name}/snapshot/public/orders"
    assert snapshot in str(checks["orders"].description)
    assert checks["items"].passed


def test_a_table_that_another_change_stops_has_no_changed_columns(
    database: Database, tmp_path: Path, instance: dg.DagsterInstance, spark: SparkSession
) -> None:
    shop = under_dagster(database, tmp_path / "lake", instance, spark)
    shop.run((shop.tick().run_requests or [])[0])
    database.execute("UPDATE orders SET amount = 'NaN' WHERE id = 1")
    checks = evaluated(shop, raise_on_error=False)
    assert checks["orders"].passed
    assert checks["orders"].description == "no column was changed"
