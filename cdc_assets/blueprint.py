"""What all parts of one component share: the pipeline, its assets' specs, and the names in Dagster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import dagster as dg

from cdc_assets.external_assets import key_part, source_key
from cdc_assets.partitions import lsn_partitions
from spark_jobs.configuration import Pipeline
from spark_jobs.qualified_name import QualifiedName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# on every run of a pipeline's jobs: by it the sensor sees whether one is active, and how the last ones ended
SLOT_TAG = "postgres_cdc/slot"
SLOT_HEALTH_CHECK = "slot_health"
WATERMARK_CHECK = "watermark_is_last_window"


@dataclass(frozen=True)
class Blueprint:
    """One component's definitions-to-be. ``table_specs`` are after translation; keys may be the user's own."""

    pipeline: Pipeline
    database: str
    spark_resource: str
    table_specs: Mapping[QualifiedName, dg.AssetSpec]

    @property
    def name(self) -> str:
        return self.pipeline.name

    @property
    def partitions(self) -> dg.DynamicPartitionsDefinition:
        return lsn_partitions(self.name)

    @property
    def change_log_key(self) -> dg.AssetKey:
        return dg.AssetKey([self.name, "change_log"])

    @property
    def source_keys(self) -> list[dg.AssetKey]:
        return [source_key(self.database, table) for table in self.table_specs]

    @property
    def messages_key(self) -> dg.AssetKey | None:
        """Of the messages table; None where the pipeline keeps none."""
        return dg.AssetKey([self.name, "_messages"]) if self.pipeline.source.messages else None

    def snapshot_key(self, table: QualifiedName) -> dg.AssetKey:
        return dg.AssetKey([self.name, "snapshot", key_part(table.nspname), key_part(table.relname)])

    def table_key(self, table: QualifiedName) -> dg.AssetKey:
        """Before translation."""
        return dg.AssetKey([self.name, key_part(table.nspname), key_part(table.relname)])

    @property
    def pool(self) -> str:
        """Everything that reads the slot or writes the tables, one run at a time."""
        return f"postgres_cdc_{self.pipeline.source.slot}"

    def spark_of(self, context: dg.AssetExecutionContext) -> Callable[[], SparkSession]:
        """The session when it is wanted: a run that has nothing to write starts no JVM."""
        resource = getattr(context.resources, self.spark_resource)
        return lambda: resource.spark_session

    @property
    def run_tags(self) -> dict[str, str]:
        return {SLOT_TAG: self.pipeline.source.slot}

    @property
    def sync_job(self) -> str:
        return f"{self.name}_sync"

    @property
    def snapshot_job(self) -> str:
        return f"{self.name}_snapshot"
