"""What a table holds, against what the configuration asks for now: other values, or another source table."""

from __future__ import annotations

from spark_jobs.configuration import Pipeline
from spark_jobs.errors import LakeError
from spark_jobs.lake.table_state import TableState
from spark_jobs.table_mask import why_masked_otherwise


def shows_another(pipeline: Pipeline, state: TableState) -> LakeError | None:
    """The error if the Delta table shows another source table than the configuration says. Then it is not touched."""
    relation = pipeline.relation(state.name)
    if state.is_lost or state.relation == relation:
        return None
    return LakeError(
        f"{state.name}: the Delta table at {pipeline.lake.table(state.name)} holds {state.relation} in mode"
        f" {state.mode}, and the configuration has {relation} there",
        hint="move it away: the next sync begins a new one",
    )


def configured_otherwise(pipeline: Pipeline, state: TableState, mask: str) -> str:
    """Why it has to be read from the source again: a clause; empty if types, masks and ignored columns are those that
    the table was written with. ``mask``: the word of the masks, or of their salt, that are configured now."""
    ignored = (column.attname for column in state.differing.ignored)
    return (
        why_masked_otherwise(state.generation.mask, mask)
        or pipeline.table(state.name).options.types.changed_since(state.generation.types)
        or pipeline.schema_policy(state.name).why_no_longer(ignored)
    )
