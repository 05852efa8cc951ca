"""``op:``, what Dagster's ops are given. Only Dagster reads it, so the command accepts it unread."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from cdc_assets.configuration.fields import Retries, Seconds, TagValue
from cdc_assets.configuration.strict_model import StrictModel

_OURS = "postgres_cdc/"
_POOL_AS_TAG = "dagster/concurrency_key"


class RetryPolicyModel(StrictModel):
    """How often a step is tried again after an error that may pass, and how long it waits before."""

    max_retries: Retries = Field(default=1, description="How many times a step is tried again.", examples=[5])
    delay: Seconds | None = Field(
        default=None, description="The time before the first retry. Default: none.", examples=["30s"]
    )
    backoff: Literal["linear", "exponential"] | None = Field(
        default=None,
        description="How the delay grows from one retry to the next. Default: it stays.",
        examples=["exponential"],
    )
    jitter: Literal["full", "plus_minus"] | None = Field(
        default=None, description="How the delay is randomised, so that retries spread. Default: it is not."
    )

    @model_validator(mode="after")
    def _of_a_delay(self) -> RetryPolicyModel:
        if self.delay is None and (self.backoff or self.jitter):
            raise ValueError(f"{'backoff' if self.backoff else 'jitter'} needs a delay, as in delay: 5s")
        return self


class OpModel(StrictModel):
    """The settings of Dagster's ops. The command ignores them."""

    tags: dict[str, TagValue] = Field(
        default_factory=dict,
        description="Tags of the ops, in addition to those that the component sets.",
        examples=[{"team": "data"}],
    )
    pool: str | None = Field(
        default=None,
        description="The pool of the ops, which several pipelines may share. Default: postgres_cdc_ and the pipeline's"
        " name, with a limit of one run.",
        examples=["spark"],
    )
    retry_policy: RetryPolicyModel | None = Field(
        default=None,
        description="How often a step is tried again after an error that may pass. Default: twice, after 5 and 10"
        " seconds.",
        examples=[{"max_retries": 5}],
    )

    @field_validator("tags")
    @classmethod
    def _not_ours(cls, tags: dict[str, Any]) -> dict[str, Any]:
        for name in tags:
            if name.startswith(_OURS):
                raise ValueError(f"{name}: names that begin with {_OURS} are the component's own")
            if name == _POOL_AS_TAG:
                raise ValueError(f"{name} is what Dagster calls the pool; set op.pool instead")
        return tags
