"""The base of all models of the configuration file, with JSON Schemas that let a checker say what is wrong.

If a value fits no branch of an ``anyOf``, a checker prints it whole, as "not valid under any of the given schemas": for
one misspelt field of one table, all tables. So the branch is chosen by the value's kind, and the error is that of the
branch, at its own place. https://json-schema.org/understanding-json-schema/reference/conditionals
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

Schema = dict[str, Any]

# Dagster and the command render templates after this check
_TEMPLATE: Schema = {"type": "string", "pattern": r"\{[{%]"}
# what describes a field, whatever its value is
_SPOKEN = ("title", "description", "default", "examples")


def _checked_by_kind(schema: Mapping[str, Any], *, templates: bool) -> Schema:
    """The schema, and those in it, without ``anyOf``. ``templates``: a template is allowed too."""
    spoken = {key: schema[key] for key in _SPOKEN if key in schema}
    rest = {key: value for key, value in schema.items() if key not in _SPOKEN}
    for key in ("items", "additionalProperties"):
        if isinstance(rest.get(key), dict):
            rest[key] = _checked_by_kind(rest[key], templates=templates)
    branches = [_checked_by_kind(branch, templates=False) for branch in rest.pop("anyOf", ())]
    chosen = _chosen(branches) if branches else rest
    free_text = chosen.keys() <= {"type", "format", "writeOnly"} and chosen.get("type") == "string"
    if templates and chosen and not free_text:
        chosen = {"if": _TEMPLATE, "else": chosen}
    return {**spoken, **chosen}


def _chosen(branches: Sequence[Schema]) -> Schema:
    """A mapping last: for a value of no listed kind, the error says that a mapping is expected, or a list."""
    ordered = sorted(branches, key=lambda branch: _KINDS.index(_kind(branch)))
    chosen = ordered[-1]
    for branch in reversed(ordered[:-1]):
        chosen = {"if": {"type": _kind(branch)}, "then": branch, "else": chosen}
    return chosen


_KINDS = ("null", "boolean", "integer", "number", "string", "array", "object")


def _kind(schema: Schema) -> str:
    """A reference is to a model, which is a mapping."""
    return str(schema.get("type", "object"))


class StrictModel(BaseModel):
    """Refuses unknown fields; errors never show a value, which may be a secret."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """For editors and ``dg check yaml``."""
        schema = handler.resolve_ref_schema(handler(core_schema))
        fields = schema.get("properties", {})
        schema["properties"] = {name: _checked_by_kind(field, templates=True) for name, field in fields.items()}
        return schema
