"""From the fields as they stand in the file to the model: templates are rendered, then everything is validated at once.

The command and the Dagster component share this. They differ in what a template may name, and in ``translation``, which
only Dagster reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from cdc_assets.configuration.environment import rendered
from cdc_assets.configuration.field_errors import FieldError, FieldPath, first_error
from spark_jobs.errors import ConfigurationError

Model = TypeVar("Model", bound=BaseModel)
Translate = Callable[[Any, FieldPath], Any]


def as_it_is(value: object, path: FieldPath) -> object:  # noqa: ARG001 - one of ``Translate``
    return value


def validated(
    model: type[Model],
    written: Mapping[str, object],
    scope: Mapping[str, object],
    translate: Translate = as_it_is,
    resolved: Mapping[str, object] | None = None,
) -> Model:
    """``scope``: what templates may name. ``translate`` gets each ``translation``, unrendered, since its templates
    also name the asset. ``resolved``: fields that are rendered already. Raises FieldError."""
    ready = dict(resolved or {})
    fields = _rendered({name: value for name, value in written.items() if name not in ready}, (), scope, translate)
    try:
        return model.model_validate({**fields, **ready})
    except ValidationError as error:
        raise first_error(error, model, written, {**fields, **ready}) from None


def _rendered(value: object, path: FieldPath, scope: Mapping[str, object], translate: Translate) -> Any:
    if isinstance(value, dict):
        return {
            key: translate(item, (*path, key))
            if key == "translation" and path[:1] in ((), ("tables",), ("defaults",))
            else _rendered(item, (*path, key), scope, translate)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_rendered(item, (*path, place), scope, translate) for place, item in enumerate(value)]
    if isinstance(value, str):
        try:
            return rendered(value, scope)
        except ConfigurationError as error:
            raise FieldError(path, error.what, error.hint) from None
    return value
