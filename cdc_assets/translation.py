"""What only Dagster knows of the configuration file: the scope of its templates, and each table's ``translation``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, TypeVar

import dagster as dg
from dagster.components.resolved.core_models import AssetAttributesModel
from dagster.components.utils.translation import TranslationFn, TranslationFnResolver
from pydantic import BaseModel, BeforeValidator, ConfigDict, GetJsonSchemaHandler, RootModel, ValidationError
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from cdc_assets.configuration.environment import EnvironmentScope
from cdc_assets.configuration.field_errors import FieldError, FieldPath, first_error
from cdc_assets.configuration.models import PipelineModel
from cdc_assets.configuration.table_model import TableDefaultsModel, TableModel
from cdc_assets.configuration.validated_fields import validated
from spark_jobs.errors import ConfigurationError

Component = TypeVar("Component", bound=PipelineModel)


_Translation = Annotated[
    TranslationFn[TableModel] | None,
    BeforeValidator(lambda value: value, json_schema_input_type=AssetAttributesModel | str | None),
]


class TableDefaults(TableDefaultsModel):
    """``defaults:``, as Dagster reads it."""

    translation: _Translation = TableDefaultsModel.model_fields["translation"]  # type: ignore[assignment]


class TableSettings(TableModel):
    """One entry of ``tables:``. Templates in ``translation`` see it as ``table``: name, schema_name, table_name."""

    translation: _Translation = TableModel.model_fields["translation"]  # type: ignore[assignment]


@cache
def attributes_model(component: type[PipelineModel]) -> type[RootModel[dict[str, Any]]]:
    """What Dagster reads a component's ``attributes`` into: the mapping as it stands in the file, since most values can
    be judged only when their templates are rendered. Its schema is that of the component."""

    class Attributes(RootModel[dict[str, Any]]):
        @classmethod
        def __get_pydantic_json_schema__(cls, _: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
            return handler(component.__pydantic_core_schema__)

    return Attributes


class _Unresolved(BaseModel):
    """The attributes as a resolver takes them."""

    model_config = ConfigDict(extra="allow")


def component_of(component: type[Component], context: dg.ResolutionContext, written: Mapping[str, object]) -> Component:
    """Read by the command's own code, so that Dagster says what the command says. Raises ConfigurationError."""
    # a variable that is not set is an error, and not the text ``None``
    scope = {**context.scope, "env": EnvironmentScope()}

    def translate(value: Any, path: FieldPath) -> TranslationFn[TableModel] | None:
        if value is None:
            return None
        at = context.with_scope(**scope)
        for part in path[:-1]:
            at = at.at_path(part)
        return _TRANSLATION(at, _asset_attributes(value, path))

    # a subclass may have fields that it resolves in a way of its own
    resolvers = {
        name: resolver
        for name, field in component.model_fields.items()
        for resolver in field.metadata
        if isinstance(resolver, dg.Resolver) and name in written
    }
    unresolved = _Unresolved.model_validate(written)
    resolved = {name: resolver.execute(context, unresolved, name) for name, resolver in resolvers.items()}
    try:
        return validated(component, written, scope, translate, resolved)
    except FieldError as error:
        raise error.at(_place(context, error.path)) from None


_TRANSLATION: Callable[[dg.ResolutionContext, Any], TranslationFn[TableModel]] = TranslationFnResolver[TableModel](
    template_vars_for_translation_fn=lambda table: {"table": table}
).fn.callable


def _asset_attributes(value: object, path: FieldPath) -> str | BaseModel:
    """A text is a template."""
    if isinstance(value, str):
        return value
    try:
        return AssetAttributesModel.model_validate(value)
    except ValidationError as error:
        wrong = first_error(error, AssetAttributesModel, value)
        raise FieldError((*path, *wrong.path), wrong.what, wrong.hint) from None


def _place(context: dg.ResolutionContext, path: Sequence[str | int]) -> str:
    """The file and the line; empty for a component that comes from no file."""
    if context.source_position_tree is None:
        return ""
    position, _ = context.source_position_tree.lookup_closest_and_path(["attributes", *path], trace=None)
    return f"{position.filename}:{position.start.line}"


def translated(spec: dg.AssetSpec, table: TableSettings) -> dg.AssetSpec:
    """The spec after the table's own ``translation``. Raises ConfigurationError if that changes the partitions."""
    changed = table.translation(spec, table) if table.translation is not None else spec
    if changed.partitions_def != spec.partitions_def:
        raise ConfigurationError(
            f"table {table.name}: its partitions are the LSN windows of the slot",
            hint="remove partitions_def from its translation",
        )
    return changed
