"""``PostgresCdcComponent``: one replication slot followed into Delta tables, as Dagster assets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, cast

import dagster as dg
from dagster.components.component.component import ComponentTypeSpec
from dagster.components.utils.defs_state import DefsStateConfig, DefsStateConfigArgs
from dagster.components.utils.translation import TranslationFn
from pydantic import BaseModel, ConfigDict, PrivateAttr

from cdc_assets.asset_specs import AssetSpecs
from cdc_assets.blueprint import Blueprint
from cdc_assets.calendars import calendars_of
from cdc_assets.configuration.engine_form import lake_of, pipeline_of
from cdc_assets.configuration.models import PipelineModel
from cdc_assets.configuration.table_model import TableModel
from cdc_assets.scaffolder import PostgresCdcScaffolder
from cdc_assets.shared_sources import NOTHING_ELSEWHERE, DeclaredElsewhere, declared_elsewhere, source_prefix
from cdc_assets.translation import (
    ASSET_ATTRIBUTES,
    TableDefaults,
    TableSettings,
    TranslatedAsset,
    attributes_model,
    component_of,
    translation_of,
)
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import ConfigurationError
from spark_jobs.qualified_name import QualifiedName

if TYPE_CHECKING:
    from typing import Self

    from cdc_assets.assets.tables import TableRun


@dg.scaffold_with(PostgresCdcScaffolder)
class PostgresCdcComponent(dg.StateBackedComponent, PipelineModel, dg.Model, dg.Resolvable):
    """PostgreSQL tables replicated into Delta Lake through one logical replication slot, window by window.

    The fields are those of the configuration file; in Python they take mappings or models:

        PostgresCdcComponent(
            name="shop",
            source={"dsn": os.environ["SHOP_DSN"]},
            lake={"path": "/data/lake/shop"},
            tables=["public.orders"],
        ).definitions()

    ``translation`` and ``op`` change how assets look and how they run. For more, subclass and override
    ``get_asset_spec`` or ``execute``.
    """

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    table_model: ClassVar[type[TableModel]] = TableSettings
    defaults: TableDefaults | None = PipelineModel.model_fields["defaults"]  # type: ignore[assignment]
    tables: Sequence[TableSettings] | None = PipelineModel.model_fields["tables"]  # type: ignore[assignment]
    translation: Annotated[TranslationFn[TranslatedAsset] | None, ASSET_ATTRIBUTES] = PipelineModel.model_fields[
        "translation"
    ]  # type: ignore[assignment]
    # where a relative lake.path starts: the YAML file's folder, or the current one
    _folder: Path = PrivateAttr(default_factory=Path.cwd)
    # the source tables whose assets other pipelines of the code location declare
    _elsewhere: DeclaredElsewhere = PrivateAttr(default=NOTHING_ELSEWHERE)
    # the component as configured, if ``tables`` are those that were found in the source
    _configured: PostgresCdcComponent | None = PrivateAttr(default=None)
    # the tables' comments, as far as the source was queried for them
    _comments: Mapping[QualifiedName, str] = PrivateAttr(default_factory=dict)

    @classmethod
    def get_spec(cls) -> ComponentTypeSpec:
        return ComponentTypeSpec(
            description="PostgreSQL tables replicated into Delta Lake by logical decoding, exactly once.",
            tags=["postgres", "deltalake", "spark", "cdc"],
        )

    @classmethod
    def model(cls) -> type[BaseModel]:
        return attributes_model(cls)

    @classmethod
    def resolve_from_model(cls, context: dg.ResolutionContext, model: BaseModel) -> Self:
        return component_of(cls, context, model.model_dump())

    def get_asset_spec(self, table: TableSettings) -> dg.AssetSpec:
        """The asset of one followed table, before any ``translation``. Override to change every table at once.

        Example: ``return super().get_asset_spec(table).replace_attributes(group_name="bronze")``
        """
        from cdc_assets.assets.untranslated_specs import table_spec

        lake = lake_of(self, self._folder)
        adds_windows, comment = self.automation.adds_windows(self.name), self._comments.get(table.relation, "")
        return table_spec(self.name, self._database, lake, table, comment, adds_windows)

    def execute(self, context: dg.AssetExecutionContext, run: TableRun) -> Iterator[Any]:
        """Apply the run's windows to the selected tables. Override to do something before or after.

        Example: ``yield from super().execute(context, run)``
        """
        from cdc_assets.assets.tables import materialise_tables

        yield from materialise_tables(context, run)

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
        pipelines = context.component_tree.get_all_components(PostgresCdcComponent)
        self._elsewhere = declared_elsewhere(self, pipelines, PostgresCdcComponent._source_keys)
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
        bring_resource = self.spark.resource is None
        return build_definitions(self._blueprint(), self.execute, self._elsewhere, bring_resource=bring_resource)

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

    @property
    def _settings(self) -> Mapping[QualifiedName, TableSettings]:
        """Of the lake's tables that are known without asking the source."""
        named = (table.pattern.name for table in self.tables or ())
        tables = (table for settings in self._settings_of(filter(None, named)) for table in settings.in_modes())
        return {table.qualified_name: table for table in tables}

    @property
    def asset_specs(self) -> AssetSpecs:
        """Those of all assets, after translation. Raises ConfigurationError if two have the same key."""
        return self._specs_of(self.pipeline)

    def _specs_of(self, pipeline: Pipeline) -> AssetSpecs:
        from cdc_assets.assets.untranslated_specs import untranslated_specs

        settings = self._settings
        specs = untranslated_specs(
            pipeline,
            self._database,
            source_prefix(self),
            {name: self.get_asset_spec(table) for name, table in settings.items()},
            self._comments,
            self.automation,
            calendars_of(self.time_partitions),
        ).translated(translation_of(self.translation, settings))
        specs.require_distinct_keys(self.name)
        return specs

    def _source_keys(self) -> Iterator[dg.AssetKey]:
        from cdc_assets.assets.untranslated_specs import source_spec

        settings, prefix = self._settings, source_prefix(self)
        translate = translation_of(self.translation, settings)
        for name in dict.fromkeys(table.relation for table in settings.values()):
            yield translate("source", name, source_spec(prefix, self._database, name, "")).key

    def _blueprint(self) -> Blueprint:
        pipeline = self.pipeline
        return Blueprint(
            pipeline=pipeline,
            specs=self._specs_of(pipeline),
            spark_resource=self.spark.resource or f"{self.name}_spark",
            op=self.op,
            automation=self.automation,
            calendars=calendars_of(self.time_partitions),
            waits_for_stopped=self.time_partitions is None or self.time_partitions.when_a_table_stops == "wait",
        )
