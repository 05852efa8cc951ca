"""What keeps a table from being applied to at all: it must begin a new generation first."""

from __future__ import annotations

from spark_jobs.configuration import Pipeline
from spark_jobs.errors import NeedsSnapshotError, OtherModeError, new_snapshot
from spark_jobs.lake.table_state import TableState
from spark_jobs.table_mask import why_masked_otherwise


def needs_new_generation(pipeline: Pipeline, state: TableState) -> NeedsSnapshotError | OtherModeError | None:
    """The reason in the table's state, or in what the configuration now says of its types, masks, ignored columns
    and mode. None if windows can be applied."""
    name = state.name
    by_hand = f"else {new_snapshot(name)}"
    if state.is_lost:
        what = f"{name}: Delta's log clean-up has removed the commit that says how far the table is"
        return NeedsSnapshotError(what, hint=new_snapshot(name))
    if what := pipeline.table(name).options.types.changed_since(state.generation.types):
        return NeedsSnapshotError(f"{name}: {what}", hint=f"`postgres-cdc sync` takes a new snapshot; {by_hand}")
    if why := why_masked_otherwise(state.generation.mask, pipeline.salt_word_of(name)):
        what = f"{name} needs a re-snapshot: {why}"
        return NeedsSnapshotError(what, hint=f"`postgres-cdc sync` does so by itself; {by_hand}")
    if why := pipeline.schema_policy(name).why_no_longer(column.attname for column in state.differing.ignored):
        what = f"{name} needs a re-snapshot: {why}"
        return NeedsSnapshotError(what, hint=f"`postgres-cdc sync` does so by itself; {by_hand}")
    if state.mode != (mode := pipeline.mode_of(name)):
        what = f"{name} is kept in mode {state.mode}, and the configuration says {mode}"
        return OtherModeError(what, hint=f"`postgres-cdc sync` changes it; {by_hand}")
    return None
