"""Dagster's own storage is lost, the lake is not: what docs/disaster-recovery.md promises. No Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from spark_jobs.verify.verify import verify
from tests.dagster.pipeline_under_dagster import TABLES, UnderDagster, under_dagster
from tests.fixtures.no_spark import no_spark
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres


def run_what_is_requested(shop: UnderDagster) -> str | None:
    (request,) = shop.tick().run_requests or []
    assert shop.run(request).success
    return request.job_name


def test_a_new_instance_goes_on_where_the_lake_is(
    database: Database, tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    lost = under_dagster(database, tmp_path / "lake", instance, None)
    assert run_what_is_requested(lost) == f"{lost.name}_snapshot"
    for number in (1, 2):
        database.execute(f"UPDATE orders SET amount = {number} WHERE id = {number}")
        assert run_what_is_requested(lost) == f"{lost.name}_sync"
    with dg.instance_for_test() as anew:
        shop = replace(lost, instance=anew)
        database.execute("DELETE FROM items WHERE order_id = 3")
        assert run_what_is_requested(shop) == f"{shop.name}_sync", "no snapshot is taken again"
        assert set(lost.partition_keys()) <= set(shop.partition_keys()) == shop.green("public", "orders")
        verdicts = [table.verdict for table in verify(shop.component.pipeline, no_spark).tables]
        assert verdicts == ["equal"] * len(TABLES)
