"""The configuration models for Dagster's components: the same fields, with templates and ``translation``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import dagster as dg
from dagster.components.utils.translation import TranslationFn, TranslationFnResolver
from pydantic import Field, SecretStr

from cdc_assets.configuration.fields import SparkValue
from cdc_assets.configuration.models import LakeModel, RetentionModel, SourceModel, SparkModel, WindowsModel
from cdc_assets.configuration.table_model import TableModel
from spark_jobs.errors import ConfigurationError


class SourceSettings(SourceModel, dg.Resolvable):
    """``source:``"""

    dsn: Annotated[SecretStr, dg.Resolver(lambda _context, value: value, model_field_type=str)]


class LakeSettings(LakeModel, dg.Resolvable):
    """``lake:``"""


class WindowsSettings(WindowsModel, dg.Resolvable):
    """``windows:``"""


class RetentionSettings(RetentionModel, dg.Resolvable):
    """``retention:``"""


class SparkSettings(SparkModel, dg.Resolvable):
    """``spark:``"""

    config: Annotated[dict[str, SparkValue], dg.Resolver.default(model_field_type=dict[str, SparkValue])] = Field(
        default_factory=dict, repr=False
    )


def _template_variables(table: TableModel) -> Mapping[str, Any]:
    return {"table": table}


class TableSettings(TableModel, dg.Resolvable):
    """One entry of ``tables:``. Templates in ``translation`` see it as ``table``: name, schema_name, table_name."""

    translation: Annotated[
        TranslationFn[TableModel] | None,
        TranslationFnResolver[TableModel](template_vars_for_translation_fn=_template_variables),
    ] = None


def resolve_tables(context: dg.ResolutionContext, tables: Sequence[Any] | None) -> Sequence[TableSettings] | None:
    """Each entry is a name or a mapping."""
    if tables is None:
        return None
    resolved = []
    for place, table in enumerate(tables):
        at = context.at_path(place)
        if isinstance(table, str):
            resolved.append(TableSettings.model_validate(at.resolve_value(table)))
        else:
            resolved.append(TableSettings.resolve_from_model(at, table))
    return resolved


TableSettingsModel = TableSettings.model()


def translated(spec: dg.AssetSpec, table: TableSettings) -> dg.AssetSpec:
    """The spec after the table's own ``translation``. Raises ConfigurationError if that changes the partitions."""
    changed = table.translation(spec, table) if table.translation is not None else spec
    if changed.partitions_def != spec.partitions_def:
        raise ConfigurationError(
            f"table {table.name}: its partitions are the LSN windows of the slot",
            hint="remove partitions_def from its translation",
        )
    return changed
