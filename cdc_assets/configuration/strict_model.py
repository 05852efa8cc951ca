"""The base of all models of the configuration file."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class StrictModel(BaseModel):
    """Refuses unknown fields; errors never show a value, which may be a secret."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)
