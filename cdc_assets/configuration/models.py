"""The fields of the configuration file: what each may hold, and what follows from it.

The one set of models behind the Dagster component and the command. They check what a file alone can tell; whether the
table exists is for PostgreSQL to say.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from cdc_assets.configuration.environment import mask_salt
from cdc_assets.configuration.fields import (
    MESSAGES,
    ChosenTypeText,
    Count,
    Hours,
    LakePath,
    OrNull,
    Publication,
    Size,
    SlotName,
    SparkValue,
    Streaming,
    TableName,
    require_named_once,
    seconds_or_none,
    size_or_none,
)
from spark_jobs.column_options import ChosenType, ChosenTypes, ColumnOptions
from spark_jobs.configuration import (
    PLUGIN_SETTINGS,
    ColumnSelection,
    HealthLimits,
    Lake,
    MergeEngine,
    MessagePrefixes,
    Pipeline,
    PluginName,
    Retention,
    Source,
    SparkOptions,
    Table,
    Threshold,
    WindowLimits,
    why_not_maskable,
)
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.table_mode import Mode

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


class StrictModel(BaseModel):
    """Unknown fields are refused; a value never appears in an error, it may be a secret."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class MessagesModel(StrictModel):
    """Which messages are wanted."""

    prefixes: Sequence[str] = Field(
        description="prefixes as they are, or with * at the end what they begin with: outbox, audit.*"
    )


class SourceModel(StrictModel):
    """The PostgreSQL database, and how its slot is read."""

    dsn: SecretStr = Field(description="libpq conninfo or URI; never printed, logged or stored")
    slot: SlotName | None = Field(default=None, description="replication slot; default: the pipeline's name")
    publication: Publication | None = Field(
        default=None,
        description="made if missing and kept in step with tables; a user's own, or a list of them, is used as it is",
    )
    plugin: PluginName = "pgoutput"
    streaming: Streaming = "off"
    two_phase: bool = False
    origin: Literal["any", "none"] = "any"
    messages: Annotated[bool | MessagesModel, MESSAGES] = Field(
        default=False, description="pg_logical_emit_message: all, none, or those of some prefixes"
    )
    binary: bool = False
    proto_version: Literal[1, 2, 3, 4] | None = Field(
        default=None, description="of pgoutput; default: the highest that the server has"
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
    """Where the Delta tables lie."""

    path: LakePath = Field(description="a folder or URI that driver and executors reach; relative to this file")


class WindowsModel(StrictModel):
    """How much WAL one window spans, and how many windows one run takes."""

    max_bytes: Size = Field(default=256 << 20, description="WAL that one window spans, as in 256MiB")
    max_per_run: Count = Field(default=64, description="windows that one run takes")


class RetentionModel(StrictModel):
    """How long `postgres-cdc maintain` keeps what is old."""

    change_log: Hours = Field(default=30 * 24, description="landed windows, as in 30d; units h, d, w")
    cuts: Hours = Field(default=30 * 24, description="cuts, and the versions of the tables that they name")


class SizeThresholdModel(StrictModel):
    """Sizes from which on a check warns, and fails; one that is absent never does."""

    # plain types: Dagster's components resolve no others in nested models
    warn: int | None = Field(default=None, description="as in 1GiB")
    error: int | None = Field(default=None, description="as in 10GiB")

    _sizes = field_validator("warn", "error", mode="before")(size_or_none)


class TimeThresholdModel(StrictModel):
    """Durations from which on a check warns, and fails; one that is absent never does."""

    warn: int | None = Field(default=None, description="as in 15m; units s, m, h, d")
    error: int | None = Field(default=None, description="as in 1d")

    _seconds = field_validator("warn", "error", mode="before")(seconds_or_none)


class HealthModel(StrictModel):
    """When the slot's health is worth a word in `status`, `doctor`, the check `slot_health` and the metrics."""

    lag_bytes: SizeThresholdModel = Field(
        default=SizeThresholdModel(warn=1 << 30, error=10 << 30), description="WAL that is not landed"
    )
    lag_seconds: TimeThresholdModel = Field(
        default=TimeThresholdModel(warn=3600), description="time that the change log is behind"
    )
    restart_bytes: SizeThresholdModel = Field(
        default=SizeThresholdModel(warn=10 << 30), description="WAL that the server keeps, and each read decodes"
    )
    oldest_transaction: TimeThresholdModel = Field(
        default=TimeThresholdModel(warn=3600), description="age of the oldest transaction that holds the slot back"
    )
    safe_wal_size: SizeThresholdModel = Field(
        default=SizeThresholdModel(warn=1 << 30), description="WAL until max_slot_wal_keep_size strikes"
    )


class ColumnsModel(StrictModel):
    """Which columns are followed, by their names in the catalogue: those named, or all but those named."""

    include: Sequence[str] = Field(default=(), description="these alone: their names as they are, without quotes")
    exclude: Sequence[str] = Field(default=(), description="all but these; they never leave the database")

    @model_validator(mode="after")
    def _one_way(self) -> ColumnsModel:
        if bool(self.include) == bool(self.exclude):
            raise ValueError("expected include or exclude, as in {exclude: [email]}")
        require_named_once([*self.include, *self.exclude])
        return self


class TableModel(StrictModel):
    """One followed table: its name alone, or a mapping."""

    name: TableName = Field(description='as SQL writes it: public.orders, public."Order Items"')
    mode: Mode = "mirror"
    columns: ColumnsModel | None = Field(default=None, description="include or exclude; absent: all that are published")
    key: Sequence[str] = Field(
        default=(),
        description="the columns of a unique index, for a table with REPLICA IDENTITY FULL and no primary key",
    )
    types: dict[str, ChosenTypeText] = Field(
        default_factory=dict,
        description="other types for single columns: decimal(p,s) of a numeric, array of an array, binary of a uuid",
    )
    on_unrepresentable: dict[str, OrNull] = Field(
        default_factory=dict, description="of single columns, where it is not the pipeline's"
    )
    mask: dict[str, Literal["sha256"]] = Field(
        default_factory=dict,
        description="columns of which only hashes are kept, as in {email: sha256}: their names as they are",
    )
    # Dagster's; the component's own model says what it holds
    translation: Any = None

    @model_validator(mode="before")
    @classmethod
    def _name_alone(cls, value: object) -> object:
        return {"name": value} if isinstance(value, str) else value

    @field_validator("key")
    @classmethod
    def _key_of_columns(cls, key: Sequence[str]) -> Sequence[str]:
        require_named_once(key)
        return key

    @model_validator(mode="after")
    def _masks_what_comes(self) -> TableModel:
        columns = self.columns or ColumnsModel.model_construct()
        for name in self.mask:
            if name in columns.exclude or (columns.include and name not in columns.include):
                raise ValueError(f"mask: column {name} is left out by columns; take it out of one of the two")
            if name in self.types:
                raise ValueError(
                    f"types: column {name} is masked, and hashes are strings; take it out of one of the two"
                )
        return self

    @property
    def qualified_name(self) -> QualifiedName:
        return QualifiedName.parse(self.name)

    @property
    def schema_name(self) -> str:
        """``nspname``; with ``table_name`` for templates in ``translation``."""
        return self.qualified_name.nspname

    @property
    def table_name(self) -> str:
        """``relname``."""
        return self.qualified_name.relname


class SparkModel(StrictModel):
    """How to get a Spark session."""

    master: str | None = Field(default=None, description="a classic master; default: SPARK_MASTER or local[*]")
    # not shown: these may hold tokens and keys of object stores
    remote: str | None = Field(default=None, repr=False, description="a Spark Connect URL, sc://host:15002")
    jars: str = Field(
        default="packages", description="packages (Maven), provided (by the cluster), or a folder of jars"
    )
    config: dict[str, SparkValue] = Field(default_factory=dict, repr=False, description="further Spark settings")
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
        default="spark", description="auto: small changes of small tables without Spark, the rest with it"
    )


class PipelineModel(StrictModel):
    """The ``attributes`` of the file."""

    name: SlotName = Field(description="prefix of asset keys; default of slot and publication")
    source: SourceModel
    lake: LakeModel
    windows: WindowsModel = Field(default_factory=WindowsModel)
    retention: RetentionModel = Field(default_factory=RetentionModel)
    health: HealthModel = Field(default_factory=HealthModel)
    on_unrepresentable: OrNull = Field(
        default="error", description="infinity dates, NaN in decimals, years beyond 9999"
    )
    on_rewrite: Literal["resnapshot", "error"] = Field(
        default="resnapshot", description="DDL that rewrites unsent rows"
    )
    tables: Sequence[TableModel] | None = Field(default=None, description="absent: every table of the publication")
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
            raise ValueError(f"tables is missing: plugin: {plugin} reads no publication that would name them")
        if selected := [table.name for table in self.tables if table.columns is not None]:
            wrong = f"tables: columns of {', '.join(selected)}"
            raise ValueError(f"{wrong}: plugin: {plugin} sends every column; use plugin: pgoutput")
        return self


def pipeline_of(model: PipelineModel, folder: Path) -> Pipeline:
    """The engine's frozen form; a relative ``lake.path`` is taken from ``folder``, the file's own.

    Raises ConfigurationError: columns are masked, and the environment holds no salt.
    """
    source = model.source
    tables = None if model.tables is None else tuple(map(_table_of, model.tables))
    return Pipeline(
        name=model.name,
        source=Source(
            dsn=source.dsn,
            slot=source.slot or model.name,
            publication=source.publication or model.name,
            plugin=source.plugin,
            streaming=source.streaming,
            two_phase=source.two_phase,
            origin=source.origin,
            messages=source.messages
            if isinstance(source.messages, bool)
            else MessagePrefixes(tuple(source.messages.prefixes)),
            binary=source.binary,
            proto_version=source.proto_version,
        ),
        lake=Lake(_absolute(model.lake.path, folder)),
        windows=WindowLimits(model.windows.max_bytes, model.windows.max_per_run),
        retention=Retention(timedelta(hours=model.retention.change_log), timedelta(hours=model.retention.cuts)),
        health=HealthLimits(**{name: Threshold(limit.warn, limit.error) for name, limit in model.health}),
        tables=tables,
        on_unrepresentable=model.on_unrepresentable,
        on_rewrite=model.on_rewrite,
        spark=SparkOptions(
            master=model.spark.master,
            remote=model.spark.remote,
            jars=model.spark.jars,
            config=tuple(model.spark.config.items()),
        ),
        mask_salt=mask_salt(),
        merge_engine=model.merge.engine,
    )


def _table_of(model: TableModel) -> Table:
    columns = model.columns
    selection = ColumnSelection(tuple(columns.include), tuple(columns.exclude)) if columns is not None else None
    types = ChosenTypes.of({name: ChosenType.parse(text) for name, text in model.types.items()})
    options = ColumnOptions(types, tuple(model.on_unrepresentable.items()))
    return Table(model.qualified_name, model.mode, selection, tuple(model.key), options, tuple(model.mask))


def _absolute(path: str, folder: Path) -> str:
    """The same place from wherever it is asked: the command and Dagster have different working directories."""
    if _URI.match(path):
        return path
    return str((folder / Path(path).expanduser()).resolve())
