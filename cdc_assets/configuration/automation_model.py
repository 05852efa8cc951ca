"""``automation:``, what starts the runs in Dagster. The command has no use for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from cdc_assets.configuration.fields import Cron, Seconds
from cdc_assets.configuration.strict_model import StrictModel

_EVERY_30_SECONDS = 30
_EVERY_FIVE_MINUTES = "*/5 * * * *"
_IN_A_WORD: Mapping[str, Mapping[str, object]] = {
    "sensor": {"sensor": _EVERY_30_SECONDS},
    "schedule": {"schedule": _EVERY_FIVE_MINUTES},
    "none": {"sensor": None, "schedule": None},
}


class AutomationModel(StrictModel):
    """What starts the runs in Dagster: in a word, or with more detail as a mapping. The command ignores it."""

    sensor: Seconds | None = Field(
        default=None,
        description="The sensor starts the runs, and looks this often at most. Default: 30s, unless schedule is given.",
        examples=["2m"],
    )
    schedule: Cron | None = Field(
        default=None,
        description="A schedule with this cron expression starts the runs, and there is no sensor. Default: none; the"
        " word schedule means every five minutes.",
        examples=["*/15 * * * *"],
    )
    default_status: Literal["stopped", "running"] = Field(
        default="stopped",
        description="Whether what starts the runs, and the schedule of the maintenance job, run as soon as they are"
        " deployed. What is turned on or off in the UI stays so.",
        examples=["running"],
    )

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = super().__get_pydantic_json_schema__(core_schema, handler)
        return {
            "if": {"type": "string", "not": {"pattern": r"\{[{%]"}},
            "then": {"enum": list(_IN_A_WORD)},
            "else": schema,
        }

    @model_validator(mode="before")
    @classmethod
    def _in_a_word(cls, value: object) -> object:
        if isinstance(value, dict):
            return value if {"sensor", "schedule"} & value.keys() else {**_IN_A_WORD["sensor"], **value}
        if isinstance(value, AutomationModel):
            return value
        if not isinstance(value, str) or value not in _IN_A_WORD:
            raise ValueError("expected sensor, schedule, none or a mapping with sensor or schedule, and default_status")
        return _IN_A_WORD[value]

    @model_validator(mode="after")
    def _one_way(self) -> AutomationModel:
        if self.sensor is not None and self.schedule is not None:
            raise ValueError("sensor and schedule exclude each other")
        return self

    @property
    def runs(self) -> bool:
        """Whether it starts runs without being turned on."""
        return self.default_status == "running"

    def adds_windows(self, pipeline: str) -> str:
        """For the description of an asset: what adds its partitions, and how to get it going."""
        turn_it_on = "" if self.runs else "; turn it on"
        if self.sensor is not None:
            return f"Its partitions are LSN windows: the sensor {pipeline}_slot_lag adds them{turn_it_on}."
        if self.schedule is not None:
            return f"Its partitions are LSN windows: the schedule {pipeline}_sync adds them{turn_it_on}."
        return "Its partitions are LSN windows."

    def maintains(self, pipeline: str) -> str:
        if self.sensor is None and self.schedule is None:
            return f"The job {pipeline}_maintenance does it."
        return f"The schedule {pipeline}_maintenance does it once a day{'' if self.runs else '; turn it on'}."

    def takes_snapshots(self, pipeline: str) -> str:
        if self.sensor is not None:
            return f"The sensor {pipeline}_slot_lag requests what is missing."
        return f"The job {pipeline}_snapshot takes what is missing."
