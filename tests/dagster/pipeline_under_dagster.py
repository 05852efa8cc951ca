"""A live database, a lake and a Dagster instance; runs are executed in this process, as the daemon would."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from cdc_assets import PostgresCdcComponent
from cdc_assets.slot_observation import observe
from spark_jobs.logicalrep.lsn import Window
from tests.fixtures.row_compare import lake_rows
from tests.fixtures.servers import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = ("public.orders", "public.items")


@dataclass(frozen=True)
class UnderDagster:
    database: Database
    component: PostgresCdcComponent
    defs: dg.Definitions
    instance: dg.DagsterInstance
    lake: Path
    spark: SparkSession | None

    @property
    def name(self) -> str:
        return self.component.name

    def tick(self, cursor: str | None = None) -> dg.SensorResult:
        """One evaluation of the sensor; its keys are added and its events stored, as the daemon does."""
        context = dg.build_sensor_context(instance=self.instance, definitions=self.defs, cursor=cursor)
        sensor = self.defs.resolve_sensor_def(f"{self.name}_slot_lag")
        result = sensor(context)
        assert isinstance(result, dg.SensorResult)
        for request in result.dynamic_partitions_requests or []:
            assert isinstance(request, dg.AddDynamicPartitionsRequest)
            self.instance.add_dynamic_partitions(request.partitions_def_name, list(request.partition_keys))
        for event in result.asset_events:
            self.instance.report_runless_asset_event(event)
        return result

    def run(self, request: dg.RunRequest, *, raise_on_error: bool = True) -> dg.ExecuteInProcessResult:
        """A run that sensor or schedule has asked for."""
        job = self.defs.resolve_job_def(request.job_name or f"{self.name}_sync")
        return job.execute_in_process(
            instance=self.instance,
            tags=dict(request.tags),
            asset_selection=request.asset_selection,
            raise_on_error=raise_on_error,
        )

    def until_quiet(self) -> str:
        """Run what is asked for until nothing is: the server writes a little WAL of its own now and then. Returns why
        nothing is asked for."""
        for _ in range(5):
            tick = self.tick()
            if not tick.run_requests:
                return str(tick.skip_reason)
            self.run(tick.run_requests[0])
        raise AssertionError("runs ask for runs")

    def partition_keys(self) -> list[str]:
        return list(self.instance.get_dynamic_partitions(f"{self.name}_lsn"))

    def green(self, *asset: str) -> set[str]:
        return self.instance.get_materialized_partitions(dg.AssetKey([self.name, *asset]))

    def metadata(self, *asset: str, partition: str | None = None) -> Mapping[str, Any]:
        """Of the newest materialisation; a range's events have no order, so say which partition where it matters."""
        records = self.instance.fetch_materializations(
            dg.AssetRecordsFilter(
                asset_key=dg.AssetKey([self.name, *asset]), asset_partitions=None if partition is None else [partition]
            ),
            limit=1,
        ).records
        assert records[0].asset_materialization is not None
        return {name: value.value for name, value in records[0].asset_materialization.metadata.items()}

    def lake_rows(self, table: str) -> list[tuple[Any, ...]]:
        assert self.spark is not None
        path = self.component.pipeline.lake.path + "/tables/" + table.replace(".", "/")
        return sorted(tuple(row.values()) for row in lake_rows(self.spark, path).to_pylist())

    def assert_equal(self, tables: Sequence[str] = TABLES) -> None:
        for table in tables:
            assert self.lake_rows(table) == sorted(self.database.execute(f"SELECT * FROM {table}"))


def under_dagster(
    database: Database, lake: Path, instance: dg.DagsterInstance, session: SparkSession | None, **attributes: Any
) -> UnderDagster:
    """Two tables with a few rows, followed by a component of their own; by Spark only where ``attributes`` say so."""
    database.execute(
        "CREATE TABLE orders (id bigint PRIMARY KEY, customer text NOT NULL, amount numeric(10,2))",
        "CREATE TABLE items (order_id bigint, line int, what text, PRIMARY KEY (order_id, line))",
        "INSERT INTO orders SELECT i, 'customer ' || i, i * 1.5 FROM generate_series(1, 100) i",
        "INSERT INTO items SELECT i, 1, 'thing' FROM generate_series(1, 100) i",
    )
    component = PostgresCdcComponent.model_validate(
        {
            "name": database.name,
            "source": {"dsn": database.dsn},
            "lake": {"path": str(lake)},
            "tables": list(TABLES),
            "merge": {"engine": "auto"},
            **attributes,
        }
    )
    return UnderDagster(database, component, component.definitions(), instance, lake, session)


def typed_in_the_ui(shop: UnderDagster) -> str:
    """A partition up to the WAL that is flushed now, without waiting for the sensor."""
    observation = observe(shop.component.pipeline)
    assert observation is not None
    key = Window(observation.landed_end, observation.health.flushed_lsn).key
    shop.instance.add_dynamic_partitions(f"{shop.name}_lsn", [key])
    return key
