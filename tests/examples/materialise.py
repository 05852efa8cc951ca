"""Runs in the example's own environment, in its folder: what its sensors would do, in one process, with the Dagster
instance of the trial. Prints JSON.

``python materialise.py DAYS`` does what two ticks of the pipeline's sensor ask for, then builds the first so many days,
and what has no days. It imports nothing of this repository's tests.
"""

from __future__ import annotations

import json
import sys

import dagster as dg
import polars as pl  # type: ignore[import-not-found]
from shop.days import DAILY, DAYS  # type: ignore[import-not-found]
from shop.definitions import defs as location  # type: ignore[import-not-found]
from shop.defs.gold import PIPELINE  # type: ignore[import-not-found]

import cdc_assets

OF_DAYS = [dg.AssetKey(name) for name in ("revenue_by_city", "order_moves", "orders_of_day")]
OF_TABLES = [dg.AssetKey(name) for name in ("order_facts", "revenue_per_customer")]


def main(days: int) -> None:
    defs = location()
    job = defs.resolve_implicit_global_asset_job_def()
    with dg.DagsterInstance.get() as instance:
        for _ in range(2):  # the second materialises the days that the first one's run has completed
            _tick(defs, instance)
        complete = sorted(instance.get_materialized_partitions(DAILY))
        ran = [
            job.execute_in_process(instance=instance, asset_selection=OF_DAYS, partition_key=day)
            for day in complete[:days]
        ]
        ran.append(job.execute_in_process(instance=instance, asset_selection=OF_TABLES))
        checks = [check for each in ran for check in each.get_asset_check_evaluations()]
    changes = cdc_assets.changes(cdc_assets.load_pipeline(PIPELINE), "public.orders")
    operations = pl.from_arrow(changes.read_all()).group_by("_operation").len()
    answer = {
        "days": DAYS.get_partition_keys(),
        "complete": complete,
        "checks": sorted({check.check_name for check in checks}),
        "failed": [check.check_name for check in checks if not check.passed],
        "operations": dict(operations.iter_rows()),
    }
    sys.stdout.write(json.dumps(answer))


def _tick(defs: dg.Definitions, instance: dg.DagsterInstance) -> None:
    sensor = defs.resolve_sensor_def("shop_slot_lag")
    result = sensor(dg.build_sensor_context(instance=instance, definitions=defs))
    assert isinstance(result, dg.SensorResult)
    for request in result.dynamic_partitions_requests or []:
        assert isinstance(request, dg.AddDynamicPartitionsRequest)
        instance.add_dynamic_partitions(request.partitions_def_name, list(request.partition_keys))
    for event in result.asset_events:
        instance.report_runless_asset_event(event)
    for run in result.run_requests or []:
        sync = defs.resolve_job_def(run.job_name or "shop_sync")
        assert sync.execute_in_process(instance=instance, tags=run.tags, asset_selection=run.asset_selection).success


if __name__ == "__main__":
    main(int(sys.argv[1]))
