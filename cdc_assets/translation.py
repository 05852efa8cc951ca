"""What only Dagster knows of the configuration file: the scope of its templates, and every ``translation``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, TypeVar

import dagster as dg
from dagster.components.resolved.core_models import AssetAttributesModel
from dagster.components.utils.translation import TranslationFn, TranslationFnResolver
from pydantic import BaseModel, BeforeValidator, ConfigDict, GetJsonSchemaHandler, RootModel, ValidationError
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from cdc_assets.asset_specs import Kind, Translate
from cdc_assets.configuration.environment import EnvironmentScope
from cdc_assets.configuration.field_errors import FieldError, FieldPath, first_error
from cdc_assets.configuration.models import PipelineModel
from cdc_assets.configuration.table_model import TableDefaultsModel, TableModel
from cdc_assets.configuration.validated_fields import validated
from spark_jobs.errors import ConfigurationError
from spark_jobs.qualified_name import QualifiedName

Component = TypeVar("Component", bound=PipelineModel)


# how a translation looks in a file
ASSET_ATTRIBUTES = BeforeValidator(lambda value: value, json_schema_input_type=AssetAttributesModel | str | None)
_Translation = Annotated[
    TranslationFn[TableModel] | None,
    ASSET_ATTRIBUTES,
]


class TableDefaults(TableDefaultsModel):
    """``defaults:``, as Dagster reads it."""

    translation: _Translation = TableDefaultsModel.model_fields["translation"]  # type: ignore[assignment]


class TableSettings(TableModel):
    """One entry of ``tables:``. Templates in ``translation`` see it as ``table``: name, schema_name, table_name."""

    translation: _Translation = TableModel.model_fields["translation"]  # type: ignore[assignment]


@dataclass(frozen=True)
class TranslatedAsset:
    """What the templates of the component's own ``translation`` see. ``table`` is None for assets that belong to no
    single table; their templates cannot name it."""

    kind: Kind
    table: TableModel | None


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

    def translate(value: Any, path: FieldPath) -> TranslationFn[TableModel] | TranslationFn[TranslatedAsset] | None:
        if value is None:
            return None
        at = context.with_scope(**scope)
        for part in path[:-1]:
            at = at.at_path(part)
        resolve = _OF_A_TABLE if len(path) > 1 else _OF_EVERY_ASSET
        return resolve(at, _asset_attributes(value, path))

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


_OF_A_TABLE: Callable[[dg.ResolutionContext, Any], TranslationFn[TableModel]] = TranslationFnResolver[TableModel](
    template_vars_for_translation_fn=lambda table: {"kind": "table", "table": table}
).fn.callable
# no table rather than None: Dagster's error then lists what a template may name
_OF_EVERY_ASSET: Callable[[dg.ResolutionContext, Any], TranslationFn[TranslatedAsset]] = TranslationFnResolver[
    TranslatedAsset
](
    template_vars_for_translation_fn=lambda asset: {
        "kind": asset.kind,
        **({} if asset.table is None else {"table": asset.table}),
    }
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


def translation_of(
    every: TranslationFn[TranslatedAsset] | None, tables: Mapping[QualifiedName, TableSettings]
) -> Translate:
    """The component's own ``translation``, and then that of the table. Raises ConfigurationError if they change the
    partitions."""

    def translate(kind: Kind, name: QualifiedName | None, spec: dg.AssetSpec) -> dg.AssetSpec:
        table = None if name is None else tables[name]
        changed = spec if every is None else every(spec, TranslatedAsset(kind, table))
        if kind == "table" and table is not None and table.translation is not None:
            changed = table.translation(changed, table)
        if changed.partitions_def == spec.partitions_def:
            return changed
        own = "its partitions are the LSN windows of the slot" if spec.partitions_def else "it has no partitions"
        raise ConfigurationError(
            f"{kind.replace('_', ' ')} {name or ''}".rstrip() + f": {own}",
            hint="remove partitions_def from its translation",
        )

    return translate
