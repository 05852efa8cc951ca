"""What all models of the configuration file have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class StrictModel(BaseModel):
    """Unknown fields are refused; a value never appears in an error, it may be a secret."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)
