"""What all parts of one component share: the pipeline, its assets' specs, and the names in Dagster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import dagster as dg

from cdc_assets.asset_specs import AssetSpecs
from cdc_assets.calendars import Calendar, CalendarName
from cdc_assets.configuration.automation_model import AutomationModel
from cdc_assets.configuration.op_model import OpModel, RetryPolicyModel
from cdc_assets.failures import RETRY_POLICY, Remedies
from cdc_assets.logged_progress import logged_progress
from cdc_assets.partitions import lsn_partitions
from cdc_assets.snapshot_observation import observed
from spark_jobs.configuration import Pipeline
from spark_jobs.options.table_mode import holds_changes
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.spark.provider import SparkProvider, one_at_a_time

if TYPE_CHECKING:
    from spark_jobs.run import Run

# The tag of every run of a pipeline's jobs. By it the sensor sees whether one is active, and how the last ones ended.
# Not the slot's name, which is unique in one cluster only; the pipeline's name is unique in a Dagster instance
PIPELINE_TAG = "postgres_cdc/pipeline"
SLOT_HEALTH_CHECK = "slot_health"
WATERMARK_CHECK = "watermark_is_last_window"
VERIFY_CHECK = "verify"
SCHEMA_CHECK = "schema_unchanged"
UNREPRESENTABLE_CHECK = "unrepresentable"
# the name under which the messages table is recorded when it is stopped; no QualifiedName prints like it
MESSAGES = "_messages"


@dataclass(frozen=True)
class Blueprint:
    """What one component's definitions are built from. ``specs`` are after translation; their keys may be the user's
    own. ``waits_for_stopped``: no day is complete without a table that is stopped."""

    pipeline: Pipeline = field(repr=False)  # its Spark settings may hold secrets
    specs: AssetSpecs
    spark_resource: str
    op: OpModel
    automation: AutomationModel
    calendars: Mapping[CalendarName, Calendar] = field(default_factory=dict)
    waits_for_stopped: bool = True

    @property
    def name(self) -> str:
        return self.pipeline.name

    @property
    def partitions(self) -> dg.DynamicPartitionsDefinition:
        return lsn_partitions(self.name)

    @property
    def table_specs(self) -> Mapping[QualifiedName, dg.AssetSpec]:
        return self.specs.tables

    @property
    def change_log_key(self) -> dg.AssetKey:
        return self.specs.change_log.key

    @property
    def messages_key(self) -> dg.AssetKey | None:
        """The key of the messages table; None if the pipeline keeps none."""
        return None if self.specs.messages is None else self.specs.messages.key

    @property
    def followed_keys(self) -> Mapping[str, dg.AssetKey]:
        """The assets that a run brings up to date from the change log, by the names that ``StoppedTables`` records."""
        tables = {str(table): spec.key for table, spec in self.table_specs.items()}
        return tables if self.messages_key is None else {**tables, MESSAGES: self.messages_key}

    @property
    def sensor(self) -> str:
        return f"{self.name}_slot_lag"

    def snapshot_key(self, table: QualifiedName) -> dg.AssetKey:
        return self.specs.snapshots[table].key

    def verify_check_key(self, table: QualifiedName) -> dg.AssetCheckKey:
        return dg.AssetCheckKey(self.table_specs[table].key, VERIFY_CHECK)

    @property
    def verified_tables(self) -> tuple[QualifiedName, ...]:
        """All except those in mode ``append``, which hold changes and not rows."""
        return tuple(table for table in self.table_specs if not holds_changes(self.pipeline.table(table).mode))

    @property
    def pool(self) -> str:
        """The pool of everything that reads the slot or writes the tables: one run at a time."""
        return self.op.pool or f"postgres_cdc_{self.name}"

    @property
    def op_tags(self) -> Mapping[str, Any]:
        return {**self.op.tags, **self.run_tags}

    @property
    def retry_policy(self) -> dg.RetryPolicy:
        return RETRY_POLICY if self.op.retry_policy is None else _retry_policy(self.op.retry_policy)

    def spark_of(
        self, context: dg.AssetExecutionContext | dg.AssetCheckExecutionContext | dg.OpExecutionContext
    ) -> SparkProvider:
        """A provider of the session, so that a run that has nothing to write starts no JVM. A resource of the user's
        need not have one."""
        resource = getattr(context.resources, self.spark_resource)
        provider: SparkProvider | None = getattr(resource, "provider", None)
        return provider or one_at_a_time(lambda: resource.spark_session)

    def run_of(self, context: dg.AssetExecutionContext | dg.AssetCheckExecutionContext | dg.OpExecutionContext) -> Run:
        """What the engine is given of Dagster's run."""
        from spark_jobs.run import Run

        progress = logged_progress(context.log.info)
        if isinstance(context, dg.AssetExecutionContext):
            keys = {table: spec.key for table, spec in self.table_specs.items()}
            progress = observed(progress, self.pipeline.lake, keys, context.log_event)
        return Run(self.pipeline, self.spark_of(context), run_id=context.run.run_id, progress=progress)

    @property
    def run_tags(self) -> dict[str, str]:
        return {PIPELINE_TAG: self.name}

    def note_run(self, context: dg.AssetExecutionContext) -> None:
        """Give a run its tag, also one that was started by hand, by a backfill or by a job of the project's own:
        otherwise the sensor would not see that it is in progress."""
        if PIPELINE_TAG not in context.run.tags:
            context.instance.add_run_tags(context.run.run_id, self.run_tags)

    @property
    def sync_job(self) -> str:
        return f"{self.name}_sync"

    @property
    def snapshot_job(self) -> str:
        return f"{self.name}_snapshot"

    @property
    def recover_job(self) -> str:
        return f"{self.name}_recover"

    @cached_property
    def remedies(self) -> Remedies:
        return Remedies(self.recover_job, {table: spec.key for table, spec in self.specs.snapshots.items()})

    @property
    def maintenance_job(self) -> str:
        return f"{self.name}_maintenance"

    @property
    def verify_job(self) -> str:
        return f"{self.name}_verify"


def _retry_policy(model: RetryPolicyModel) -> dg.RetryPolicy:
    return dg.RetryPolicy(
        max_retries=model.max_retries,
        delay=model.delay,
        backoff=dg.Backoff(model.backoff.upper()) if model.backoff else None,
        jitter=dg.Jitter(model.jitter.upper()) if model.jitter else None,
    )
