"""The check ``unrepresentable`` on a table: values that were stored otherwise than the source has them."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from tests.dagster.pipeline_under_dagster import UnderDagster, under_dagster
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres


def evaluated(shop: UnderDagster) -> dict[str, dg.AssetCheckEvaluation]:
    [request] = shop.tick().run_requests or []
    found = shop.run(request).get_asset_check_evaluations()
    return {check.asset_key.path[-1]: check for check in found if check.check_name == "unrepresentable"}


def test_values_that_do_not_fit_are_a_warning(database: Database, tmp_path: Path, instance: dg.DagsterInstance) -> None:
    shop = under_dagster(database, tmp_path / "lake", instance, None, on_unrepresentable="clamp")
    database.execute("ALTER TABLE orders ADD day date")
    assert all(check.passed for check in evaluated(shop).values())
    database.execute("INSERT INTO orders VALUES (1000, 'a', 1, 'infinity'), (1001, 'b', 1, '-infinity')")
    checks = evaluated(shop)
    assert (checks["orders"].passed, checks["orders"].severity) == (False, dg.AssetCheckSeverity.WARN)
    assert checks["orders"].description == "since its snapshot, 2 values were stored otherwise: 2 in day"
    assert checks["orders"].metadata["day"].value == 2
    assert "1000" not in str(checks["orders"])
    assert shop.metadata("public", "orders")["unrepresentable"] == 2
    database.execute("UPDATE orders SET day = NULL")
    assert not evaluated(shop)["orders"].passed
