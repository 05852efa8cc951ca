"""The fields of the configuration file: what each may hold, and how they depend on each other.

The Dagster component and the command share these models. They check what can be told from the file alone; only
PostgreSQL knows whether a table exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from cdc_assets.configuration.fields import (
    MESSAGES,
    Count,
    Dsn,
    Hours,
    KeyPart,
    LakePath,
    OrNull,
    Publication,
    Seconds,
    Size,
    SlotName,
    SparkValue,
    Streaming,
    require_named_once,
)
from cdc_assets.configuration.strict_model import StrictModel
from cdc_assets.configuration.table_model import TableModel
from spark_jobs.configuration import (
    PLUGIN_SETTINGS,
    MergeEngine,
    PluginName,
    why_not_maskable,
)


class MessagesModel(StrictModel):
    """Which messages are kept."""

    prefixes: Sequence[str] = Field(
        description="exact prefixes, or with * at the end all that begin so", examples=[["outbox", "audit.*"]]
    )


class SourceModel(StrictModel):
    """The PostgreSQL database, and how its slot is read."""

    dsn: Dsn = Field(
        description="libpq conninfo or URI; never printed, logged or stored",
        examples=["postgresql://USER:PASSWORD@HOST:5432/DATABASE"],
    )
    slot: SlotName | None = Field(
        default=None, description="replication slot; default: the pipeline's name", examples=["shop_1"]
    )
    publication: Publication | None = Field(
        default=None,
        description="created if missing and kept in step with tables; a user's own, or a list, is used as it is",
        examples=["shop"],
    )
    plugin: PluginName = Field(default="pgoutput", description="the slot's output plugin")
    streaming: Streaming = Field(
        default="off", description="whether large transactions are sent before they end; parallel needs PostgreSQL 16"
    )
    two_phase: bool = Field(default=False, description="whether prepared transactions are sent before they end")
    origin: Literal["any", "none"] = Field(
        default="any", description="none: without the changes that the source itself got by replication"
    )
    messages: Annotated[bool | MessagesModel, MESSAGES] = Field(
        default=False,
        description="pg_logical_emit_message: all, none, or those of some prefixes",
        examples=[{"prefixes": ["outbox", "audit.*"]}],
    )
    binary: bool = Field(default=False, description="whether values are sent in binary form")
    proto_version: Literal[1, 2, 3, 4] | None = Field(
        default=None, description="of pgoutput; default: the server's highest"
    )
    adopt_slot: bool = Field(
        default=False,
        description="whether a new change log may be read from a slot that has been read for another lake, which is"
        " then given up",
    )

    key_prefix: Annotated[tuple[KeyPart, ...], Field(min_length=1)] | None = Field(
        default=None,
        description="for Dagster: what the asset keys of the source tables begin with; default: postgres, the database",
        examples=[["eu", "shop"]],
    )

    @model_validator(mode="after")
    def _of_the_plugin(self) -> SourceModel:
        for field in PLUGIN_SETTINGS[self.plugin].refused:
            value = getattr(self, field)
            if value != type(self).model_fields[field].default:
                shown = "true" if value is True else value
                raise ValueError(
                    f"{field}: {shown} is not for plugin: {self.plugin}; leave it out, or use plugin: pgoutput"
                )
        return self


class LakeModel(StrictModel):
    """Where the Delta tables are."""

    path: LakePath = Field(
        description="a folder or URI that driver and executors reach; relative to this file",
        examples=["s3a://bucket/shop"],
    )


class WindowsModel(StrictModel):
    """How much WAL one window spans, and how many windows one run takes."""

    max_bytes: Size = Field(default=256 << 20, description="WAL that one window spans", examples=["256MiB"])
    max_per_run: Count = Field(default=64, description="windows that one run takes", examples=[64])


class RetentionModel(StrictModel):
    """How long `postgres-cdc maintain` keeps old data."""

    change_log: Hours = Field(default=30 * 24, description="landed windows; units h, d, w", examples=["30d"])
    cuts: Hours = Field(
        default=30 * 24, description="cuts, and the versions of the tables that they name", examples=["30d"]
    )


class SizeThresholdModel(StrictModel):
    """The sizes from which a check warns, or fails; without one it never does."""

    warn: Size | None = Field(default=None, description="units B, KiB, MiB, GiB", examples=["1GiB"])
    error: Size | None = Field(default=None, description="units B, KiB, MiB, GiB", examples=["10GiB"])


class TimeThresholdModel(StrictModel):
    """The durations from which a check warns, or fails; without one it never does."""

    warn: Seconds | None = Field(default=None, description="units s, m, h, d", examples=["15m"])
    error: Seconds | None = Field(default=None, description="units s, m, h, d", examples=["1d"])


class HealthModel(StrictModel):
    """The thresholds of the slot's health in `status`, `doctor`, the check `slot_health` and the metrics."""

    lag_bytes: SizeThresholdModel = Field(
        default=SizeThresholdModel(warn=1 << 30, error=10 << 30), description="WAL that is not landed"
    )
    lag_seconds: TimeThresholdModel = Field(
        default=TimeThresholdModel(warn=3600), description="how late the change log is"
    )
    restart_bytes: SizeThresholdModel = Field(
        default=SizeThresholdModel(warn=10 << 30), description="WAL that the server retains, and each read decodes"
    )
    oldest_transaction: TimeThresholdModel = Field(
        default=TimeThresholdModel(warn=3600), description="age of the oldest transaction that holds the slot back"
    )
    safe_wal_size: SizeThresholdModel = Field(
        default=SizeThresholdModel(warn=1 << 30), description="WAL until max_slot_wal_keep_size is exceeded"
    )


class SparkModel(StrictModel):
    """How to get a Spark session."""

    master: str | None = Field(default=None, description="a classic master; default: local[*]")
    # not shown: these may hold tokens and keys of object stores
    remote: str | None = Field(default=None, repr=False, description="a Spark Connect URL, sc://host:15002")
    jars: str = Field(
        default="packages", description="packages (Maven), provided (by the cluster), or a folder of jars"
    )
    config: dict[str, SparkValue] = Field(
        default_factory=dict,
        repr=False,
        description="further Spark settings",
        examples=[{"spark.sql.shuffle.partitions": 4}],
    )
    resource: str | None = Field(
        default=None, description="Dagster only: the key of your own PySparkResource, used instead of ours"
    )

    @model_validator(mode="after")
    def _one_way(self) -> SparkModel:
        if self.master and self.remote:
            raise ValueError("master and remote exclude each other")
        return self


class MergeModel(StrictModel):
    """How changes are written into tables."""

    engine: MergeEngine = Field(
        default="spark",
        description="auto: small changes, and large ones of small tables, without Spark, the rest with it",
    )


class PipelineModel(StrictModel):
    """The ``attributes`` of the file."""

    name: SlotName = Field(description="prefix of asset keys; default of slot and publication", examples=["shop_1"])
    source: SourceModel
    lake: LakeModel
    windows: WindowsModel = Field(default_factory=WindowsModel)
    retention: RetentionModel = Field(default_factory=RetentionModel)
    health: HealthModel = Field(default_factory=HealthModel)
    on_unrepresentable: OrNull = Field(
        default="error", description="infinite dates, NaN in decimals, years beyond 9999"
    )
    on_rewrite: Literal["resnapshot", "error"] = Field(
        default="resnapshot", description="changes that cannot be applied in place, such as DDL that rewrites rows"
    )
    tables: Sequence[TableModel] | None = Field(
        default=None,
        description="names, or mappings; absent: every table of the publication",
        examples=[["public.orders"]],
    )
    spark: SparkModel = Field(default_factory=SparkModel)
    merge: MergeModel = Field(default_factory=MergeModel)

    @field_validator("tables")
    @classmethod
    def _distinct(cls, tables: Sequence[TableModel] | None) -> Sequence[TableModel] | None:
        if tables is None:
            return None
        if not tables:
            raise ValueError("is empty; leave it out to follow every table of the publication")
        require_named_once([str(table.qualified_name) for table in tables])
        return tables

    @model_validator(mode="after")
    def _names_its_tables(self) -> PipelineModel:
        plugin = self.source.plugin
        masked = ", ".join(table.name for table in self.tables or () if table.mask)
        if masked and (why := why_not_maskable(plugin, binary=self.source.binary)):
            raise ValueError(f"tables: mask of {masked}: {why}")
        if PLUGIN_SETTINGS[plugin].has_publications:
            return self
        if self.tables is None:
            raise ValueError(f"tables is missing: plugin: {plugin} has no publication that would name them")
        if selected := [table.name for table in self.tables if table.columns is not None]:
            wrong = f"tables: columns of {', '.join(selected)}"
            raise ValueError(f"{wrong}: plugin: {plugin} sends every column; use plugin: pgoutput")
        return self
