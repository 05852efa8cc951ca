"""The fields of the configuration file: what each may hold, and how they depend on each other.

The Dagster component and the command share these models. They check what the file alone shows; only PostgreSQL knows
whether a table exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from cdc_assets.configuration.automation_model import AutomationModel
from cdc_assets.configuration.fields import (
    CatalogTemplate,
    Count,
    Endpoint,
    FolderTemplateText,
    KeptFor,
    LakePath,
    OrNull,
    Size,
    SlotName,
    SparkRemote,
    SparkValue,
    TableName,
    Word,
    require_named_once,
)
from cdc_assets.configuration.health_model import HealthModel
from cdc_assets.configuration.op_model import OpModel
from cdc_assets.configuration.schema_policy_model import SchemaPolicyModel
from cdc_assets.configuration.source_model import SourceModel
from cdc_assets.configuration.strict_model import StrictModel
from cdc_assets.configuration.table_model import TableDefaultsModel, TableModel
from cdc_assets.configuration.table_rules import TableRules
from cdc_assets.configuration.time_partitions_model import TimePartitionsModel
from spark_jobs.configuration import PLUGIN_SETTINGS, MergeEngine, why_not_maskable
from spark_jobs.object_stores import store_of
from spark_jobs.options.folder_template import DEFAULT_FOLDERS
from spark_jobs.options.table_pattern import TablePattern


class StorageModel(StrictModel):
    """How the object store of `lake.path` is reached, where its clients do not find that out by themselves. Credentials
    come from the environment, or from the machine's role."""

    endpoint: Endpoint | None = Field(
        default=None,
        description="The URL of the store, if it is not that of Amazon, Google or Azure: of another S3 store, a private"
        " endpoint, an emulator. Default for S3: `AWS_ENDPOINT_URL` in the environment, if it is set.",
        examples=["https://minio.internal:9000"],
    )
    region: Word | None = Field(
        default=None,
        description="The region of an S3 bucket. Default: `AWS_REGION` in the environment, if it is set.",
        examples=["eu-central-1"],
    )
    path_style: bool | None = Field(
        default=None,
        description="Whether requests to an S3 store have the bucket's name in their path, and not in the host name."
        " Most stores other than Amazon's need `true`. Default: as each client decides.",
        examples=[True],
    )


class LakeModel(StrictModel):
    """Where the Delta tables are."""

    path: LakePath = Field(
        description="The folder or URI of the lake. Driver and executors must reach it. A relative path starts at the"
        " folder of this file.",
        examples=["s3a://bucket/shop"],
    )
    storage: StorageModel = Field(
        default_factory=StorageModel,
        description="How the object store of `path` is reached. Not for a folder.",
        examples=[{"endpoint": "https://minio.internal:9000", "path_style": True}],
    )
    tables: FolderTemplateText = Field(
        default=DEFAULT_FOLDERS.text,
        description="The folder of each table below `path`; `{schema}` and `{table}` stand for the source's. `{schema}`"
        " may be left out if all entries of `tables` are of one schema.",
        examples=["bronze/{schema}__{table}"],
    )
    catalog: CatalogTemplate | None = Field(
        default=None,
        description="The name that each table gets in a catalogue which Spark knows, such as a Hive metastore: two or"
        " three parts, in which `{schema}` and `{table}` stand for the source's. The first run that has a Spark session"
        " registers it. Default: tables have no names, only paths.",
        examples=["shop_{schema}.{table}"],
    )

    @model_validator(mode="after")
    def _fits(self) -> LakeModel:
        store, given = store_of(self.path), self.storage.model_dump(exclude_none=True)
        if given and store is None:
            raise ValueError("storage is for object stores, and path is a folder; leave storage out")
        if store is not None and (others := given.keys() - store.takes):
            raise ValueError(f"storage: {', '.join(sorted(others))} does not apply to {store.scheme}://; leave it out")
        return self


class WindowsModel(StrictModel):
    """How much WAL one window spans, and how many windows one run takes."""

    max_bytes: Size = Field(
        default=256 << 20,
        description="How much WAL one window spans at most. A transaction belongs to the window in which it commits.",
        examples=["256MiB"],
    )
    max_per_run: Count = Field(
        default=64, description="How many windows are captured and applied together at most.", examples=[64]
    )


class SnapshotModel(StrictModel):
    """How large tables are read."""

    chunk: Size = Field(
        default=256 << 20,
        description="About how much of a table is read in one transaction. What is read stays, whatever happens to the"
        " process. Smaller tables are read in one piece.",
        examples=["256MiB"],
    )
    parallel: Count | None = Field(
        default=None,
        description="How many chunks are read at once. Default: one for each core; by executors of a cluster, 16.",
        examples=[4],
    )
    rate_limit: Size | None = Field(
        default=None,
        description="How many bytes of a large table are read in each second at most. Default: no limit.",
        examples=["50MiB"],
    )
    partial: bool = Field(
        default=False,
        description="Whether the chunks that are read so far can be queried, as a Delta table of their own, which is"
        " removed when the snapshot has ended. Its rows were read at different moments.",
        examples=[True],
    )


class RetentionModel(StrictModel):
    """How long `postgres-cdc maintain` keeps old data."""

    change_log: KeptFor = Field(
        default=30 * 86400,
        description="How long captured windows are kept. Windows that a table has not applied yet are kept longer.",
        examples=["30d"],
    )
    cuts: KeptFor = Field(
        default=30 * 86400,
        description="How long cuts are kept, with the table versions that they name.",
        examples=["30d"],
    )


class SparkModel(StrictModel):
    """How to get a Spark session."""

    master: str | None = Field(
        default=None, description="The master of a classic Spark session. Default: local[*].", examples=["local[4]"]
    )
    # not shown: these may hold tokens and keys of object stores
    remote: SparkRemote | None = Field(
        default=None,
        repr=False,
        description="The URL of a Spark Connect server, instead of master.",
        examples=["sc://host:15002"],
    )
    jars: str = Field(
        default="packages",
        description="Where Delta's jars come from: Maven (packages), the cluster (provided), or the folder that is"
        " named here.",
        examples=["/opt/delta-jars"],
    )
    config: dict[str, SparkValue] = Field(
        default_factory=dict,
        repr=False,
        description="Settings of Spark. spark.pyspark.python is the Python of the executors.",
        examples=[{"spark.sql.shuffle.partitions": 4}],
    )
    resource: str | None = Field(
        default=None,
        description="For Dagster: the key of a resource of your own that provides the Spark session.",
        examples=["my_spark"],
    )

    @model_validator(mode="after")
    def _one_way(self) -> SparkModel:
        if self.master and self.remote:
            raise ValueError("master and remote exclude each other")
        return self


class MergeModel(StrictModel):
    """How rows are written into tables."""

    engine: MergeEngine = Field(
        default="spark",
        description="spark: Spark writes every row of the tables, snapshots included. auto: this process writes without"
        " Spark what costs less so, and Spark the rest; for one machine.",
    )


class PipelineModel(StrictModel):
    """The ``attributes`` of the file."""

    # of a single table
    table_model: ClassVar[type[TableModel]] = TableModel

    name: SlotName = Field(
        description="The pipeline's name. Asset keys begin with it, and slot and publication have it by default.",
        examples=["shop_1"],
    )
    source: SourceModel = Field(description="The PostgreSQL database, and how its slot is read.")
    lake: LakeModel = Field(description="Where the Delta tables are.")
    windows: WindowsModel = Field(
        default_factory=WindowsModel, description="How much WAL is read and applied at a time."
    )
    snapshot: SnapshotModel = Field(default_factory=SnapshotModel, description="How large tables are read.")
    retention: RetentionModel = Field(
        default_factory=RetentionModel, description="How long postgres-cdc maintain keeps old data."
    )
    health: HealthModel = Field(
        default_factory=HealthModel, description="When lag, old transactions and retained WAL are reported."
    )
    on_unrepresentable: OrNull = Field(
        default="error",
        description="What happens to a value that the lake's type cannot hold, such as an infinite date, NaN in a"
        ' decimal or a year beyond 9999. error stops the table, "null" stores NULL, clamp stores the nearest value that'
        " fits; either keeps a record of it.",
    )
    on_rewrite: Literal["resnapshot", "error"] = Field(
        default="resnapshot",
        description="What happens to a table after a change that cannot be applied in place, such as DDL that rewrites"
        " rows. resnapshot takes a new snapshot without a command, error stops the table.",
    )
    on_schema_change: SchemaPolicyModel = Field(
        default_factory=SchemaPolicyModel, description="What happens to a table when its columns change at the source."
    )
    defaults: TableDefaultsModel | None = Field(
        default=None,
        description="What applies to every table, as far as its entry does not say otherwise. Default: the defaults of"
        " the fields.",
        examples=[{"mode": "history"}],
    )
    tables: Sequence[TableModel] | None = Field(
        default=None,
        description="The tables to replicate: names as in SQL, patterns such as public.*, or mappings with a name or a"
        " pattern. Default: every table of the publication.",
        examples=[["public.orders"]],
    )
    exclude: Sequence[TableName] = Field(
        default=(),
        description="Names and patterns of tables that are left out, even if tables names them. Default: none.",
        examples=[["public.audit_*"]],
    )
    spark: SparkModel = Field(default_factory=SparkModel, description="How to get a Spark session.")
    merge: MergeModel = Field(default_factory=MergeModel, description="How changes are written into tables.")
    # the component's own model defines its type
    translation: Any = Field(
        default=None,
        description="For Dagster: attributes of every asset. A table's own translation is applied after it.",
        examples=[{"owners": ["team:data"]}],
    )
    automation: AutomationModel = Field(
        default=AutomationModel(sensor=30),
        validate_default=False,
        description="For Dagster: what starts the runs. With none there are jobs, and neither sensor nor schedules."
        " Default: sensor.",
        examples=["schedule"],
    )
    time_partitions: TimePartitionsModel | None = Field(
        default=None,
        description="Assets in Dagster whose partitions are days or hours, and a cut at the end of each.",
        examples=[{"daily": {"timezone": "Europe/Berlin"}}],
    )
    op: OpModel = Field(default_factory=OpModel, description="For Dagster: tags, pool and retries of the ops.")

    @field_validator("tables")
    @classmethod
    def _distinct(cls, tables: Sequence[TableModel] | None) -> Sequence[TableModel] | None:
        if tables is None:
            return None
        if not tables:
            raise ValueError("is empty; leave it out to follow every table of the publication")
        require_named_once([str(table.pattern) for table in tables])
        return tables

    @model_validator(mode="after")
    def _not_named_and_excluded(self) -> PipelineModel:
        for pattern in map(TablePattern.parse, self.exclude):
            for table in self.tables or ():
                if (name := table.pattern.name) is not None and pattern.matches(name):
                    raise ValueError(f"exclude: {pattern} leaves out {name}; take it out of exclude or of tables")
        return self

    @model_validator(mode="after")
    def _tells_schemas_apart(self) -> PipelineModel:
        if "{schema}" not in self.lake.tables and self.only_schema is None:
            raise ValueError(
                f"lake: tables: {self.lake.tables} is for the tables of one schema; put {{schema}} into it, or let each"
                " entry of tables name one and the same schema"
            )
        return self

    @model_validator(mode="after")
    def _names_its_tables(self) -> PipelineModel:
        plugin = self.source.plugin
        masked = ", ".join(table.name for table in self.tables or () if table.mask)
        by_default = self.defaults or TableDefaultsModel.model_construct()
        if (masked or by_default.mask) and (why := why_not_maskable(plugin, binary=self.source.binary)):
            raise ValueError(f"tables: mask of {masked}: {why}" if masked else f"defaults: mask: {why}")
        if PLUGIN_SETTINGS[plugin].has_publications:
            return self
        if self.tables is None:
            raise ValueError(f"tables is missing: plugin: {plugin} has no publication that would name them")
        if selected := [table.name for table in self.tables if table.columns is not None]:
            wrong = f"tables: columns of {', '.join(selected)}"
            raise ValueError(f"{wrong}: plugin: {plugin} sends every column; use plugin: pgoutput")
        if by_default.columns is not None:
            raise ValueError(f"defaults: columns: plugin: {plugin} sends every column; use plugin: pgoutput")
        return self

    @property
    def asks_source(self) -> bool:
        """Whether only the source can tell which tables these are."""
        return self.tables is None or any(table.pattern.name is None for table in self.tables)

    @property
    def only_schema(self) -> str | None:
        """The schema of all tables, if that is certain."""
        schemas = {table.pattern.schema for table in self.tables or ()}
        return schemas.pop() if len(schemas) == 1 else None

    @property
    def table_rules(self) -> TableRules:
        return TableRules.of(self.table_model, self.defaults, self.tables or ())
