"""gold.py of examples/shop: an asset of a user's own follows ours by its automation condition. No Spark."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from deltalake import DeltaTable, QueryBuilder

from tests.dagster.pipeline_under_dagster import TABLES, UnderDagster, under_dagster
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres

EXAMPLE = Path(__file__).parents[2] / "examples" / "shop" / "shop" / "defs" / "gold.py"
GOLD = dg.AssetKey("revenue_per_customer")
REVENUE = """
SELECT customer, sum(amount), sum(lines)::bigint
FROM orders JOIN (SELECT order_id, count(*) AS lines FROM items GROUP BY 1) i ON order_id = orders.id GROUP BY 1
"""


@dataclass
class Gold:
    """``cursor``: what the automation sensor has seen."""

    shop: UnderDagster
    defs: dg.Definitions
    table: Path
    cursor: Any = None

    def is_requested(self) -> bool:
        """By one tick of the automation sensor; with the run that it asks for."""
        evaluated = dg.evaluate_automation_conditions(self.defs, self.shop.instance, cursor=self.cursor)
        self.cursor = evaluated.cursor
        if not evaluated.total_requested:
            return False
        job = self.defs.resolve_implicit_global_asset_job_def()
        assert job.execute_in_process(instance=self.shop.instance, asset_selection=[GOLD]).success
        return True

    def assert_equal(self) -> None:
        read = QueryBuilder().register("gold", DeltaTable(str(self.table))).execute("SELECT * FROM gold").read_all()
        columns = [column.to_pylist() for column in read.columns]
        assert sorted(zip(*columns, strict=True)) == sorted(self.shop.database.execute(REVENUE))


@pytest.fixture
def gold(database: Database, tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> Gold:
    """The example in a project's folder, beside its pipeline."""
    source = {"dsn": database.dsn, "slot": database.name, "publication": database.name}
    shop = under_dagster(database, tmp_path / "lake", instance, None, name="shop", source=source)
    (tmp_path / "shop").mkdir()
    attributes = {"name": "shop", "source": source, "lake": {"path": str(shop.lake)}, "tables": list(TABLES)}
    document = {"type": "cdc_assets.PostgresCdcComponent", "attributes": attributes}
    (tmp_path / "shop" / "defs.yaml").write_text(yaml.safe_dump(document))
    monkeypatch.setenv("SHOP_LAKE", str(shop.lake))
    monkeypatch.setenv("PATH", os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])))
    spec = spec_from_file_location("gold", shutil.copy(EXAMPLE, tmp_path / "gold.py"))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    defs = dg.Definitions.merge(shop.defs, dg.Definitions(assets=[module.revenue_per_customer]))
    return Gold(shop, defs, shop.lake / "gold" / "revenue_per_customer")


def run_what_is_requested(shop: UnderDagster) -> None:
    """By one tick of the pipeline's sensor: the snapshots, then the windows up to now."""
    (request,) = shop.tick().run_requests or []
    assert shop.run(request).success


def test_it_is_built_again_with_each_change_of_its_tables(gold: Gold) -> None:
    shop = gold.shop
    assert not gold.is_requested(), "there is nothing yet"
    run_what_is_requested(shop)
    shop.database.execute(
        "INSERT INTO orders VALUES (1000, 'customer 1', 7)", "INSERT INTO items VALUES (1000, 1, 'x')"
    )
    run_what_is_requested(shop)
    assert gold.is_requested()
    gold.assert_equal()
    assert not gold.is_requested(), "nothing has changed since"
    shop.database.execute("UPDATE orders SET amount = amount + 1 WHERE id < 5", "DELETE FROM items WHERE order_id = 9")
    run_what_is_requested(shop)
    assert gold.is_requested()
    gold.assert_equal()


def test_a_window_that_is_never_applied_does_not_hold_it_up(gold: Gold) -> None:
    """Landed before a break: on the tables its partition stays missing."""
    shop = gold.shop
    assert not gold.is_requested(), "there is nothing yet"
    run_what_is_requested(shop)
    shop.database.execute("UPDATE orders SET amount = 3 WHERE id = 1")
    run_what_is_requested(shop)
    shop.instance.add_dynamic_partitions("shop_lsn", ["0/1-0/2"])
    assert gold.is_requested()
    gold.assert_equal()
