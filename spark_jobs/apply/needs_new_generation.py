"""What keeps a table from being applied to at all: it must begin a new generation first."""

from __future__ import annotations

from spark_jobs.configuration import Pipeline
from spark_jobs.errors import LakeError, NeedsSnapshotError, OtherModeError, new_snapshot
from spark_jobs.lake.table_state import TableState
from spark_jobs.tables.configured_otherwise import configured_otherwise, shows_another


def needs_new_generation(
    pipeline: Pipeline, state: TableState
) -> NeedsSnapshotError | OtherModeError | LakeError | None:
    """The reason in the table's state, or in what the configuration now says of its types, masks, ignored columns
    and mode; or LakeError for a table that is not replaced at all. None if windows can be applied."""
    name = state.name
    if another := shows_another(pipeline, state):
        return another
    if state.is_lost:
        what = f"{name}: Delta's log clean-up has removed the commit that says how far the table is"
        return NeedsSnapshotError(what, hint=new_snapshot(name))
    if why := configured_otherwise(pipeline, state, pipeline.salt_word_of(name)):
        return NeedsSnapshotError.because(name, why)
    if (lake_form := state.generation.form) != (form := pipeline.form_of(name)):
        what = f"{name} is kept in mode {lake_form}, and the configuration says {form}"
        return OtherModeError(what, hint=f"`postgres-cdc sync` changes it; else {new_snapshot(name)}")
    return None
