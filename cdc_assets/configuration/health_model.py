"""The fields of ``health``."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, Field, ValidationInfo, ValidatorFunctionWrapHandler, field_validator

from cdc_assets.configuration.fields import Seconds, Size
from cdc_assets.configuration.strict_model import StrictModel
from cdc_assets.configuration.units import seconds_text, size_text


class SizeThresholdModel(StrictModel):
    """The sizes from which a check warns, or fails."""

    warn: Size | None = Field(
        default=None,
        description="From this size on the check warns; `null`: never. Default: that of the pair, above.",
        examples=["1GiB"],
    )
    error: Size | None = Field(
        default=None,
        description="From this size on the check fails; `null`: never. Default: that of the pair, above.",
        examples=["10GiB"],
    )


class TimeThresholdModel(StrictModel):
    """The durations from which a check warns, or fails."""

    warn: Seconds | None = Field(
        default=None,
        description="From this duration on the check warns; `null`: never. Default: that of the pair, above.",
        examples=["15m"],
    )
    error: Seconds | None = Field(
        default=None,
        description="From this duration on the check fails; `null`: never. Default: that of the pair, above.",
        examples=["1d"],
    )


class HealthModel(StrictModel):
    """The thresholds of the slot's health in `status`, `doctor`, the check `slot_health` and the metrics. A
    threshold of a pair that is not written keeps its default, unless that contradicts the one that is written; `null`
    switches it off."""

    lag_bytes: SizeThresholdModel = Field(
        default=SizeThresholdModel(warn=1 << 30, error=10 << 30), description="WAL that is not captured yet."
    )
    lag_seconds: TimeThresholdModel = Field(
        default=TimeThresholdModel(warn=3600), description="How far the change log is behind the source, in time."
    )
    restart_bytes: SizeThresholdModel = Field(
        default=SizeThresholdModel(warn=10 << 30),
        description="WAL that the server retains for the slot. Each read decodes it again.",
    )
    oldest_transaction: TimeThresholdModel = Field(
        default=TimeThresholdModel(warn=3600), description="Age of the oldest transaction that holds the slot back."
    )
    safe_wal_size: SizeThresholdModel = Field(
        default=SizeThresholdModel(warn=1 << 30),
        description="WAL that can still be written before max_slot_wal_keep_size invalidates the slot. The check warns"
        " or fails below these sizes.",
    )

    @field_validator("*", mode="wrap")
    @classmethod
    def _with_defaults(
        cls, value: object, validated: ValidatorFunctionWrapHandler, info: ValidationInfo
    ) -> SizeThresholdModel | TimeThresholdModel:
        """A threshold of the pair that is not written keeps its default, unless that contradicts the one that is."""
        default: BaseModel = cls.model_fields[str(info.field_name)].default
        written = value.model_dump(exclude_unset=True) if isinstance(value, BaseModel) else value
        merged = {**default.model_dump(), **written} if isinstance(written, Mapping) else value
        pair: SizeThresholdModel | TimeThresholdModel = validated(merged)
        # of safe_wal_size, the smaller one is the worse one
        if pair.warn is None or pair.error is None or info.field_name == "safe_wal_size" or pair.warn <= pair.error:
            return pair
        if isinstance(written, Mapping) and len(written) == 1:
            return pair.model_copy(update={"warn" if "error" in written else "error": None})
        shown = size_text if isinstance(pair, SizeThresholdModel) else seconds_text
        raise ValueError(
            f"warn: {shown(pair.warn)} is more than error: {shown(pair.error)}; set both, or switch one off with null"
        )
