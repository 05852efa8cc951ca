"""``on_schema_change:``, of the pipeline and of a table: which changes of a table's columns stop it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from cdc_assets.configuration.strict_model import StrictModel
from spark_jobs.options.schema_policy import FOLLOW_ALL, SchemaPolicy


class SchemaPolicyModel(StrictModel):
    """What happens to a table when its columns change at the source. stop stops the table before the change."""

    add: Literal["follow", "ignore", "stop"] | None = Field(
        default=None,
        description="When a column is added. ignore: it stays out of the lake. Default: follow; of a table: the"
        " pipeline's.",
        examples=["stop"],
    )
    drop: Literal["follow", "keep", "stop"] | None = Field(
        default=None,
        description="When a column is dropped. keep: it stays in the lake with its values. Default: follow; of a table:"
        " the pipeline's.",
        examples=["stop"],
    )
    retype: Literal["snapshot", "stop"] | None = Field(
        default=None,
        description="When a column gets another type. snapshot is what on_rewrite says. Default: snapshot; of a table:"
        " the pipeline's.",
        examples=["stop"],
    )

    def over(self, pipeline: SchemaPolicy = FOLLOW_ALL) -> SchemaPolicy:
        """The policy, with the pipeline's for everything that is not set here."""
        return SchemaPolicy(self.add or pipeline.add, self.drop or pipeline.drop, self.retype or pipeline.retype)
