"""What a table holds, against what the configuration asks for now: other values or forms, or another source table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_jobs.configuration import Pipeline
from spark_jobs.errors import LakeError, NeedsSnapshotError, OtherModeError, new_snapshot
from spark_jobs.lake.table_state import TableState
from spark_jobs.options.table_mask import why_masked_otherwise
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.tables.catalogue_changes import is_of_earlier_chapter
from spark_jobs.tables.ledger import Ledger


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


def needs_new_generation(
    pipeline: Pipeline, state: TableState
) -> NeedsSnapshotError | OtherModeError | LakeError | None:
    """What keeps a table from being applied to at all: the reason in its state, or in what the configuration now says
    of its types, masks, ignored columns and mode; or LakeError for a table that is not replaced at all. None if windows
    can be applied."""
    name = state.name
    if another := shows_another(pipeline, state):
        return another
    if state.is_lost:
        what = f"{name}: Delta's log no longer says how far the table is"
        return NeedsSnapshotError(what, hint=new_snapshot(name))
    if why := configured_otherwise(pipeline, state, pipeline.salt_word_of(name)):
        return NeedsSnapshotError.because(name, why)
    if (lake_form := state.generation.form) != (form := pipeline.table(name).form):
        what = f"{name} is kept in mode {lake_form}, and the configuration says {form}"
        return OtherModeError(what, hint=f"`postgres-cdc sync` changes it; else {new_snapshot(name)}")
    return None


@dataclass(frozen=True)
class BegunGenerations:
    """The generations that the tables have, and what the configuration asks for. ``masks``: the words of
    source tables."""

    pipeline: Pipeline
    ledger: Ledger
    masks: Mapping[QualifiedName, str]

    def needs_another(self, name: QualifiedName) -> bool:
        """Whether the table has no generation in this chapter of the log, or one of another form than configured."""
        if name in self.ledger.errors:  # an unreadable table is replaced only on request
            return False
        state = self.ledger.states.get(name)
        if state is None:
            return True
        if shows_another(self.pipeline, state) is not None:  # applying says so
            return False
        if is_of_earlier_chapter(state, self.ledger.identity.chapter):
            return True
        return not state.is_lost and (
            state.generation.form != self.pipeline.table(name).form or bool(self.why_from_source(name))
        )

    def why_from_source(self, name: QualifiedName) -> str:
        """How its types, masks or ignored columns changed: then it must be read from the source, even if its mode
        changed too. Empty if they did not, or if it has no readable snapshot."""
        state = self.ledger.states.get(name)
        if state is None or state.is_lost:
            return ""
        return configured_otherwise(self.pipeline, state, self.masks.get(self.pipeline.relation(name), ""))
