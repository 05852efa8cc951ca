"""The base of all models of the configuration file."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from cdc_assets.configuration.checked_by_kind import checked_by_kind


class StrictModel(BaseModel):
    """Refuses unknown fields; errors never show a value, which may be a secret."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """For editors and ``dg check yaml``."""
        schema = handler.resolve_ref_schema(handler(core_schema))
        fields = schema.get("properties", {})
        schema["properties"] = {name: checked_by_kind(field, templates=True) for name, field in fields.items()}
        return schema
