"""Rebuild a table in the form that the configuration has by now, from what the lake has: in another mode from one of
the table's versions and the change log, with other commit columns from its newest version.

The source's rows are not read. The new table is built aside and replaces the old one in one numbered commit: until then
the table stays as it is, in its old mode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from spark_jobs.apply.staging import staging_folder
from spark_jobs.change_log.change_counts import NO_CHANGES, ChangeCounts
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import CdcError, NeedsSnapshotError
from spark_jobs.lake.latest_cut import show_in_latest_cut
from spark_jobs.lake.past_states import PastState
from spark_jobs.lake.table_state import TableState
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.options.table_mode import CommitColumn, Form, Mode, needs_key
from spark_jobs.postgres.fingerprints import fingerprint_words
from spark_jobs.progress import Step
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.replay.aside import Build
from spark_jobs.replay.landed_windows import LandedWindows
from spark_jobs.replay.mode_base import OtherForm, other_mode, same_mode
from spark_jobs.retries import again_when_overtaken
from spark_jobs.run import Run
from spark_jobs.schema.misfits import NO_MISFITS, Misfits
from spark_jobs.tables.catalogue_changes import is_of_earlier_chapter
from spark_jobs.tables.configured_otherwise import shows_another
from spark_jobs.tables.followed_tables import watched_tables
from spark_jobs.tables.ledger import Ledger, concerns
from spark_jobs.writers.table_commit import ModeOrigin, Provenance
from spark_jobs.writers.with_spark.delta_table import column_numbers, replace_table, table_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class ModeChanged:
    """Table ``name``, so far in mode ``before``, was rebuilt in ``mode`` from its Delta version ``base_version`` and
    ``windows`` windows of the change log, with ``changes``. It has what the mode keeps from the LSN ``known_since`` on.
    With an ``error``, it was not rebuilt and is unchanged. ``commit_columns``: those that it has now; if the mode is
    the same, only these are others.
    """

    name: QualifiedName
    before: Mode
    mode: Mode
    known_since: Lsn = Lsn(0)  # noqa: RUF009 - a number
    base_version: int = 0
    windows: int = 0
    changes: ChangeCounts = NO_CHANGES
    rows_written: int = 0
    delta_version: int | None = None
    error: CdcError | None = None
    commit_columns: tuple[CommitColumn, ...] = ()

    @property
    def what(self) -> str:
        """The change in a few words, for reports."""
        form = Form(self.mode, self.commit_columns)
        if self.before == self.mode:
            return f"{form}, rebuilt from its own rows"
        return f"{self.before} to {form}, rebuilt from the change log, known since {self.known_since}"


def change_modes(run: Run, names: Sequence[QualifiedName]) -> tuple[ModeChanged, ...]:
    """Rebuild those of ``names`` that are not in the form that the configuration has for them. The others are not
    touched, and not in the result. Each table's watermark stays the same.

    A table that fails is in the result with its error: GapError and NeedsSnapshotError if versions or log do not reach
    back far enough, DecodeError and UnrepresentableError for a change that the new mode would have to show and cannot.
    """
    pipeline = run.pipeline
    todo = _in_other_forms(pipeline, names)
    if not todo:
        return ()
    done: list[ModeChanged] = []
    with run.guarded() as run:
        for state in todo:
            form = pipeline.table(state.name).form
            try:
                changed = _locked_and_changed(run, state.name)
            except CdcError as error:
                commits = form.commit_columns
                changed = ModeChanged(state.name, state.mode, form.mode, error=error, commit_columns=commits)
            done += [changed] if changed is not None else []
            run.progress(Step("mode", f"{state.name} to {form}", len(done), len(todo), "tables"))
        made = [table.name for table in done if table.error is None]
        with run.guard.cuts():
            show_in_latest_cut(pipeline.lake, LandedWindows.of(pipeline).identity, made)
    return tuple(done)


def _in_other_forms(pipeline: Pipeline, names: Sequence[QualifiedName]) -> list[TableState]:
    """The states of those tables that grew from a snapshot of this chapter and are in another form. Tables that cannot
    be read, or show another source table, are left out."""
    ledger = Ledger.of(pipeline.lake)
    if ledger is None:
        return []
    chapter = ledger.identity.chapter
    states = (state for state in ledger.opening(names).states.values() if not state.is_lost)
    return [
        state
        for state in states
        if state.generation.form != pipeline.table(state.name).form
        and not is_of_earlier_chapter(state, chapter)
        and shows_another(pipeline, state) is None
    ]


@again_when_overtaken
def _locked_and_changed(run: Run, name: QualifiedName) -> ModeChanged | None:
    """The result, None if another process has changed the form meanwhile. Raises CdcError, including OvertakenError;
    then nothing is changed."""
    with run.guard.table(name):
        states = _in_other_forms(run.pipeline, [name])
        return _changed(run, states[0]) if states else None


def _changed(run: Run, state: TableState) -> ModeChanged:
    pipeline = run.pipeline
    landed, form = LandedWindows.of(pipeline), pipeline.table(state.name).form
    if form.mode == state.mode:
        other = same_mode(landed, state, form)
    else:
        other = other_mode(run.spark, landed, state, form)
        _require_key(run, landed, other.base, state, form.mode)
    base = other.base.state
    columns = column_numbers(run.spark(), pipeline.lake.table(state.name))
    ahead = landed.after(base.ordinal, state.ordinal)
    build = Build(run, landed, base, ahead, other_form=other, columns=columns)
    build.check()
    if not any(concerns(marker, base) for marker in build.ahead):
        path = pipeline.lake.table(state.name)
        return _put_in_place(build, state, lambda own: other.rows(own, path), NO_CHANGES)
    with staging_folder(pipeline.lake, state) as folder:
        built = build.in_folder(folder)
        return _put_in_place(build, state, lambda own: table_at(own, built.path), built.changes, built.misfits)


def _require_key(run: Run, landed: LandedWindows, base: PastState, state: TableState, mode: Mode) -> None:
    """Raises NeedsSnapshotError if the mode keeps rows by their key, and the base's rows are not known to have had one.

    The log's facts say which key the table had. If there are none, the source says it, provided that the table was not
    altered since the snapshot.
    """
    if not needs_key(mode) or needs_key(base.state.mode):
        return
    relids = () if state.relid is None else (state.relid,)
    facts = landed.log.facts(base.state.ordinal + 1, state.ordinal, relids)
    if facts:
        if not all(landed_facts.facts.key for landed_facts in facts):
            raise NeedsSnapshotError("the table had no key when changes of it were landed")
        return
    watched = watched_tables(run.pipeline, (state.name,), landed.markers[-1])
    with run.source() as connection:
        _, word = fingerprint_words(connection, watched).get(state.relation, (0, ""))
    if not word or word != state.generation.word:
        raise NeedsSnapshotError("the table was altered, and the change log does not say yet what key it had")


def _put_in_place(
    build: Build,
    state: TableState,
    rows: Callable[[SparkSession], DataFrame],
    changes: ChangeCounts,
    misfits: Misfits = NO_MISFITS,
) -> ModeChanged:
    """Replace the table by ``rows``, in one commit. ``misfits``: of the rows that the base does not have; those that
    the other mode did not show have no record yet. Raises OvertakenError if anybody has committed since ``state``."""
    other = build.other_form
    assert other is not None
    path, layout = build.pipeline.lake.table(state.name), build.pipeline.table(state.name).options.layout

    def write(own: SparkSession) -> None:
        replace_table(rows(own), path, layout)

    failed, provenance = f"was not brought into mode {other.form}", _provenance(build, other, state, changes)
    version, written = build.put_in_place(state, provenance, write, failed=failed, misfits=misfits)
    return ModeChanged(
        state.name,
        state.mode,
        other.form.mode,
        other.since.lsn,
        build.base.version,
        len(build.ahead),
        changes,
        written,
        version,
        commit_columns=other.form.commit_columns,
    )


def _provenance(build: Build, other: OtherForm, state: TableState, changes: ChangeCounts) -> Provenance:
    return replace(
        build.provenance(state),
        generation=state.generation.in_form(other.form),
        changes=changes,
        unrepresentable=replace(build.base.unrepresentable, file=state.unrepresentable.file),
        mode_changed=ModeOrigin(state.mode, build.base.version, other.since.lsn),
    )
