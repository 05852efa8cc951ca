"""Why a table has to be read from the source again, as the configuration now asks for other values than it holds."""

from __future__ import annotations

from spark_jobs.configuration import Pipeline
from spark_jobs.lake.table_state import TableState
from spark_jobs.table_mask import why_masked_otherwise


def configured_otherwise(pipeline: Pipeline, state: TableState, mask: str) -> str:
    """A clause; empty if types, masks and ignored columns are those that the table was written with. ``mask``: the word
    of the masks, or of their salt, that are configured now."""
    ignored = (column.attname for column in state.differing.ignored)
    return (
        why_masked_otherwise(state.generation.mask, mask)
        or pipeline.table(state.name).options.types.changed_since(state.generation.types)
        or pipeline.schema_policy(state.name).why_no_longer(ignored)
    )
