"""The first rows of a table in another form: those of one of its versions. In another mode, only the source's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_jobs.errors import NeedsSnapshotError
from spark_jobs.lake.past_states import PastState
from spark_jobs.schema.mode_columns import CHANGE, COMMIT_LSN, live_rows, own_columns
from spark_jobs.schema.moment import Moment
from spark_jobs.table_mode import Form, holds_changes
from spark_jobs.writers.delta_table import table_at, table_columns, with_metadata
from spark_jobs.writers.past_rows import snapshot_rows, with_commit_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class OtherForm:
    """``form``, in place of that of ``base``, a version of the table that shows the source's rows at ``since``. In
    another mode the table has what the mode keeps from then on; in the same one it keeps all that it has."""

    form: Form
    base: PastState
    since: Moment

    def rows(self, spark: SparkSession, path: str) -> DataFrame:
        """The new table's first rows. ``path``: the existing table's. Raises NeedsSnapshotError if the source has a
        column with the name of one of the form's."""
        state = self.base.state
        columns = table_columns(spark, path, state.version)
        ours = {column.name.lower() for column in own_columns(self.form)}
        if clashes := [column.name for column in columns if column.name.lower() in ours]:
            raise NeedsSnapshotError(f"{state.name} has columns that {self.form} adds itself: {', '.join(clashes)}")
        rows = table_at(spark, path, state.version)
        if state.mode == self.form.mode:
            return with_metadata(with_commit_columns(rows, self.form, self.since), columns, self.form)
        theirs = rows.where(source_rows(self.base) or "false")
        theirs = theirs.drop(*(column.name for column in own_columns(state.generation.form)))
        return with_metadata(snapshot_rows(theirs, self.form, self.since), columns, self.form)


def source_rows(past: PastState) -> str | None:
    """The SQL condition for the source's rows in a past version of a table; None if it does not show them."""
    if not holds_changes(past.state.mode):
        return live_rows(past.state.mode)
    if not past.is_snapshot or past.state.generation.is_empty:
        return None
    return f"`{CHANGE.name}` = 'snapshot' AND `{COMMIT_LSN.name}` = {int(past.state.snapshot_lsn)}"
