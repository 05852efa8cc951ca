"""``PostgresCdcComponent``: one replication slot followed into Delta tables, as Dagster assets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import dagster as dg
from dagster.components.component.component import ComponentTypeSpec
from dagster.components.utils.defs_state import DefsStateConfig, DefsStateConfigArgs
from pydantic import BaseModel, ConfigDict, PrivateAttr

from cdc_assets.blueprint import Blueprint
from cdc_assets.configuration.engine_form import lake_of, pipeline_of
from cdc_assets.configuration.models import PipelineModel
from cdc_assets.configuration.table_model import TableModel
from cdc_assets.scaffolder import PostgresCdcScaffolder
from cdc_assets.shared_sources import NOTHING_ELSEWHERE, DeclaredElsewhere, declared_elsewhere, source_prefix
from cdc_assets.translation import TableDefaults, TableSettings, attributes_model, component_of, translated
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import ConfigurationError
from spark_jobs.qualified_name import QualifiedName

if TYPE_CHECKING:
    from typing_extensions import Self

    from cdc_assets.assets.tables import TableRun


@dg.scaffold_with(PostgresCdcScaffolder)
class PostgresCdcComponent(dg.StateBackedComponent, PipelineModel, dg.Model, dg.Resolvable):
    """Follow one logical replication slot of a PostgreSQL database into Delta tables, window by window.

    The fields are those of the configuration file; in Python they take mappings or models:

        PostgresCdcComponent(
            name="shop",
            source={"dsn": os.environ["SHOP_DSN"]},
            lake={"path": "/data/lake/shop"},
            tables=["public.orders"],
        ).definitions()

    To change how assets look or what a run does, subclass and override ``get_asset_spec`` or ``execute``.
    """

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    table_model: ClassVar[type[TableModel]] = TableSettings
    defaults: TableDefaults | None = PipelineModel.model_fields["defaults"]  # type: ignore[assignment]
    tables: Sequence[TableSettings] | None = PipelineModel.model_fields["tables"]  # type: ignore[assignment]
    # where a relative lake.path starts: the YAML file's folder, or the current one
    _folder: Path = PrivateAttr(default_factory=Path.cwd)
    # the source tables whose assets other pipelines of the code location declare
    _elsewhere: DeclaredElsewhere = PrivateAttr(default=NOTHING_ELSEWHERE)
    # as it was configured, if ``tables`` is what the source had when it was asked
    _configured: PostgresCdcComponent | None = PrivateAttr(default=None)
    # those on the tables, as far as the source was asked for them
    _comments: Mapping[QualifiedName, str] = PrivateAttr(default_factory=dict)

    @classmethod
    def get_spec(cls) -> ComponentTypeSpec:
        return ComponentTypeSpec(
            description="PostgreSQL tables followed into Delta Lake by logical decoding, exactly once.",
            tags=["postgres", "deltalake", "spark", "cdc"],
        )

    @classmethod
    def model(cls) -> type[BaseModel]:
        return attributes_model(cls)

    @classmethod
    def resolve_from_model(cls, context: dg.ResolutionContext, model: BaseModel) -> Self:
        return component_of(cls, context, model.model_dump())

    def get_asset_spec(self, table: TableSettings) -> dg.AssetSpec:
        """The asset of one followed table, before ``translation``. Override to change every table at once.

        Example: ``return super().get_asset_spec(table).replace_attributes(group_name="bronze")``
        """
        from cdc_assets.assets.tables import table_spec

        lake = lake_of(self, self._folder)
        name = table.qualified_name
        return table_spec(self.name, self._database, lake, name, self._comments.get(name, ""))

    def execute(self, context: dg.AssetExecutionContext, run: TableRun) -> Iterator[Any]:
        """Apply the run's windows to the selected tables. Override to do something before or after.

        Example: ``yield from super().execute(context, run)``
        """
        from cdc_assets.assets.tables import apply_windows

        yield from apply_windows(context, run)

    @property
    def defs_state_config(self) -> DefsStateConfig:
        """Where the discovered tables' names are kept if ``tables`` is absent or has patterns. Override to keep them
        elsewhere."""
        return DefsStateConfig.from_args(
            DefsStateConfigArgs.local_filesystem(), default_key=f"{type(self).__name__}[{self.name}]"
        )

    def write_state_to_path(self, state_path: Path) -> None:
        from cdc_assets.discovered_tables import discover_tables

        discover_tables(self.pipeline, state_path)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        self._folder = Path(context.path)
        self._elsewhere = declared_elsewhere(self, context.component_tree.get_all_components(PostgresCdcComponent))
        return super().build_defs(context) if self.asks_source else self.definitions()

    def build_defs_from_state(
        self,
        context: dg.ComponentLoadContext,  # noqa: ARG002 - Dagster's signature
        state_path: Path | None,
    ) -> dg.Definitions:
        from cdc_assets.discovered_tables import discovered_tables

        comments = discovered_tables(self.name, state_path)
        tables = self._settings_of(map(QualifiedName.parse, comments))
        discovered = self.model_copy(update={"tables": tables})
        discovered._comments = {table.qualified_name: comments[table.name] for table in discovered.tables or ()}
        discovered._configured = self
        return discovered.definitions()

    def definitions(self) -> dg.Definitions:
        """All Dagster definitions of this pipeline; for use without YAML.

        Raises ConfigurationError if the connection string is invalid, or ``tables`` is missing or has patterns.
        """
        from cdc_assets.definitions import build_definitions

        if self.asks_source:
            raise ConfigurationError(
                f"pipeline {self.name}: tables {'is missing' if self.tables is None else 'has patterns'}",
                hint="list the tables: each becomes an asset, and the source is not queried here; only a component that"
                " is loaded from a defs folder, or the command, can ask the source for its tables",
            )
        tables = self._settings_of(table.qualified_name for table in self.tables or ())
        specs = {table.qualified_name: translated(self.get_asset_spec(table), table) for table in tables}
        keys = Counter(spec.key for spec in specs.values())
        if twice := sorted(key.to_user_string() for key, times in keys.items() if times > 1):
            raise ConfigurationError(
                f"pipeline {self.name}: two tables have the asset key {', '.join(twice)}",
                hint="give one of them another key in its translation; if their names differ only in characters other"
                " than letters, digits and _, follow one of them in a pipeline of its own",
            )
        bring_resource = self.spark.resource is None
        return build_definitions(self._blueprint(specs), self.execute, self._elsewhere, bring_resource=bring_resource)

    def _settings_of(self, names: Iterable[QualifiedName]) -> list[TableSettings]:
        rules = self.table_rules
        return [cast("TableSettings", rules.settings_of(name)) for name in names]

    @property
    def pipeline(self) -> Pipeline:
        """This configuration in the engine's form, as ``spark_jobs`` takes it."""
        pipeline = pipeline_of(self, self._folder)
        if self._configured is None:
            return pipeline
        patterns = pipeline_of(self._configured, self._folder).patterns
        return replace(pipeline, patterns=patterns, tables_of_publication=patterns is None or not patterns.tables)

    @property
    def _database(self) -> str:
        from cdc_assets.configuration.database_name import database_name

        return database_name(self.source.dsn)

    def _blueprint(self, table_specs: Mapping[QualifiedName, dg.AssetSpec]) -> Blueprint:
        return Blueprint(
            pipeline=self.pipeline,
            database=self._database,
            source_prefix=source_prefix(self),
            spark_resource=self.spark.resource or f"{self.name}_spark",
            table_specs=table_specs,
            comments=self._comments,
        )
