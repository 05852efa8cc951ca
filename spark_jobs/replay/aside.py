"""Build a table aside, in a folder of its own, from one of its earlier versions and the windows that follow it.

It is built on a shallow clone, so that only changed rows are written; in another mode, on the rows that the version
shows. The code that applies the windows is the same as for the table itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING

from spark_jobs.apply.apply_tables import apply_table
from spark_jobs.apply.table_range import TableRange
from spark_jobs.change_log.change_counts import NO_CHANGES, ChangeCounts
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Lake, Pipeline, Table
from spark_jobs.delta.table import delta_identifier, open_table
from spark_jobs.errors import SchemaChangeError
from spark_jobs.lake.table_state import TableState, table_state
from spark_jobs.lake.unrepresentable import Unrepresentable
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.options.schema_policy import SchemaPolicy
from spark_jobs.options.table_layout import NO_LAYOUT
from spark_jobs.options.table_mask import why_masked_otherwise
from spark_jobs.options.table_mode import Form
from spark_jobs.postgres.write_guard import UNGUARDED
from spark_jobs.replay.landed_windows import LandedWindows
from spark_jobs.replay.mode_base import OtherForm
from spark_jobs.run import Run
from spark_jobs.schema.misfits import NO_MISFITS, RECORDS_SCHEMA, Misfits
from spark_jobs.spark.errors import spark_errors
from spark_jobs.spark.session import isolated_session
from spark_jobs.storage import Location
from spark_jobs.tables.catalogue_changes import change_without_event
from spark_jobs.writers.table_commit import Provenance, commit_without_rows, committed_version, committing_session
from spark_jobs.writers.with_arrow.rows_of_table import rows_of_table
from spark_jobs.writers.with_spark.arranged_table import rewriting
from spark_jobs.writers.with_spark.delta_table import replace_table, rows_written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class _Aside(Lake):
    """A folder for tables built aside, from the change log at ``log``."""

    _: KW_ONLY
    log: Location

    @property
    def change_log(self) -> Location:
        return self.log


@dataclass(frozen=True)
class BuiltAside:
    """The Delta table at ``path``, and the ``changes`` in the windows that were applied, of whose rows are the
    ``misfits``."""

    path: Location
    changes: ChangeCounts
    misfits: Misfits = NO_MISFITS


@dataclass(frozen=True)
class Build:
    """Apply the windows ``ahead``, which follow the table state ``base``, without transactions that committed at or
    after ``before``. The table is built in the form of ``base``, even if the configuration has another by now, or in
    ``other_form``, if given. ``columns``: the numbers of the columns that it is to have, of those of ``base`` and
    those that were added; None: as ``policy`` says."""

    run: Run
    landed: LandedWindows
    base: TableState
    ahead: tuple[WindowMarker, ...]
    before: Lsn | None = None
    other_form: OtherForm | None = None
    columns: frozenset[int] | None = None

    @property
    def pipeline(self) -> Pipeline:
        return self.run.pipeline

    @property
    def form(self) -> Form:
        return self.other_form.form if self.other_form else self.base.generation.form

    @property
    def policy(self) -> SchemaPolicy:
        """It stops at no change, as the table has had these windows before. A table that leaves out columns gets no
        others either, and one that keeps dropped columns keeps them, whatever the configuration says now."""
        policy, differing = self.pipeline.schema_policy(self.base.name).without_stops, self.base.differing
        policy = replace(policy, add="ignore") if differing.ignored else policy
        return replace(policy, drop="keep") if differing.kept else policy

    def check(self) -> None:
        """Raises SchemaChangeError if rows changed in these windows in a way that the log does not show, or the table's
        masks were other than they are now."""
        if why := why_masked_otherwise(self.base.generation.mask, self.pipeline.salt_word_of(self.base.name)):
            raise SchemaChangeError(
                f"the version of {self.landed.shown_by(self.base)} cannot be built on: since then {why}",
                hint="choose an LSN after the snapshot that followed",
            )
        if changed := change_without_event(self.ahead, self.base):
            begin = self.landed.shown_by(self.base)
            raise SchemaChangeError(
                f"the change log does not lead on from the version of {begin}: {changed.what}",
                hint="choose an LSN before that, or after the table was read again",
            )

    def provenance(self, state: TableState) -> Provenance:
        """That of the commit which puts what was built in the place of ``state``: the windows ahead of the base were
        applied again."""
        identity, relid, hi = self.landed.identity, state.relid or self.base.relid or 0, self.landed.shown_by(state)
        first, lo = (self.ahead[0].ordinal, self.ahead[0].window.lo) if self.ahead else (state.ordinal, hi)
        return Provenance.following(state, identity, relid, first, state.ordinal, lo, hi, self.run.run_id)

    def in_folder(self, folder: Location) -> BuiltAside:
        """Build the table in ``folder``. Raises CdcError."""
        lake = _Aside(folder, folder.storage, log=self.pipeline.lake.change_log)
        # with the base's types, even if the configuration has others by now
        configured = self.pipeline.table(self.base.name)
        options = replace(configured.options, types=self.base.generation.types, layout=NO_LAYOUT)
        mode, commit_columns = self.form.mode, self.form.commit_columns
        table = Table(
            self.base.name,
            mode,
            options=options,
            mask=configured.mask,
            metadata_columns=commit_columns,
            shows=configured.shows,
        )
        aside = replace(self.pipeline, lake=lake, tables=(table,), on_schema_change=self.policy)
        path = aside.lake.table(self.base.name)
        with spark_errors(
            f"{self.base.name} was not built from its Delta version {self.base.version}",
            hint="a VACUUM may have removed files of that version: choose a later LSN",
        ):
            state = self._created(aside)
        if not self.ahead:
            return BuiltAside(path, NO_CHANGES)
        # alone with a folder that nobody else knows
        run = replace(self.run, pipeline=aside, guard=UNGUARDED)
        applied = apply_table(TableRange(run, state, self.ahead, before=self.before, columns=self.columns))
        if applied.error is not None:
            raise applied.error
        built = table_state(lake, self.base.name, self.landed.identity)
        assert built is not None
        return BuiltAside(path, applied.changes, _recorded(lake, built.unrepresentable))

    def put_in_place(
        self,
        state: TableState,
        provenance: Provenance,
        write: Callable[[SparkSession], None],
        *,
        failed: str,
        misfits: Misfits = NO_MISFITS,
    ) -> tuple[int, int]:
        """Replace the rows of the pipeline's table, which is at ``state``, by those that ``write`` writes, in one
        commit. ``misfits``: of the rows that have no record yet. Returns the Delta version and the number of rows.
        Raises OvertakenError if anybody has committed since ``state``."""
        lake, spark = self.pipeline.lake, self.run.spark()
        path, layout = lake.table(state.name), self.pipeline.table(state.name).options.layout
        with (
            spark_errors(f"{state.name} {failed}", name=state.name, path=path),
            rewriting(spark, path, layout),
            provenance.recording(lake, state.name, misfits) as recorded,
            committing_session(spark, path, recorded, by_any=True) as own,
        ):
            write(own)
            version = committed_version(own, path, recorded)
            return version, rows_written(path, version)

    def _created(self, aside: Pipeline) -> TableState:
        """Create the table with the base's rows, and with a commit that records how far it is, as applying needs it."""
        spark = self.run.spark()
        base, identity, lsn = self.base, self.landed.identity, self.landed.shown_by(self.base)
        source, target = self.pipeline.lake.table(base.name), aside.lake.table(base.name)
        provenance = Provenance(
            *identity.stream,
            base.generation.in_form(self.form),
            first=base.ordinal,
            last=base.ordinal,
            lo=lsn,
            hi=lsn,
            relid=base.relid or 0,
            commits=1,
            differing=base.differing,
        )
        if self.other_form is not None:
            with committing_session(spark, target, provenance) as own:
                replace_table(self.other_form.rows(own, source), target)
        else:
            with isolated_session(spark, {}) as own:
                clone = f"SHALLOW CLONE {delta_identifier(source)} VERSION AS OF {base.version}"
                own.sql(f"CREATE TABLE {delta_identifier(target)} {clone}")
            commit_without_rows(spark, target, provenance)
        state = table_state(aside.lake, base.name, identity)
        assert state is not None
        return state


def _recorded(lake: Lake, unrepresentable: Unrepresentable) -> Misfits:
    """Those of the one table that the lake has."""
    table = open_table(lake.unrepresentable, str(lake.unrepresentable)) if unrepresentable else None
    if table is None:
        return NO_MISFITS
    return Misfits(unrepresentable.counts, rows_of_table(table).select(RECORDS_SCHEMA.names))
