"""The first rows of a table in another mode: the source's rows at one LSN, from one of the table's versions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_jobs.errors import NeedsSnapshotError
from spark_jobs.lake.past_states import PastState
from spark_jobs.schema.mode_columns import CHANGE, COMMIT_LSN, live_rows, mode_columns
from spark_jobs.schema.moment import Moment
from spark_jobs.table_mode import Mode, holds_changes
from spark_jobs.writers.delta_table import table_at, table_columns, with_attribute_numbers
from spark_jobs.writers.past_rows import snapshot_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class OtherMode:
    """``mode``, in place of that of ``base``, a version of the table that shows the source's rows at ``since``. The new
    table has what the mode keeps from then on."""

    mode: Mode
    base: PastState
    since: Moment

    def rows(self, spark: SparkSession, path: str) -> DataFrame:
        """The new table's first rows. ``path``: the existing table's. Raises NeedsSnapshotError if the source has a
        column with the name of one of the mode's."""
        state = self.base.state
        columns, shown = table_columns(spark, path, state.version), source_rows(self.base)
        ours = {column.name.lower() for column in mode_columns(self.mode)}
        if taken := [column.name for column in columns if column.name.lower() in ours]:
            raise NeedsSnapshotError(f"{state.name} has columns that mode {self.mode} adds itself: {', '.join(taken)}")
        held = table_at(spark, path, state.version).where(shown or "false")
        theirs = held.drop(*(column.name for column in mode_columns(state.mode)))
        return with_attribute_numbers(snapshot_rows(theirs, self.mode, self.since), columns, self.mode)


def source_rows(past: PastState) -> str | None:
    """The SQL condition for the source's rows in a past version of a table; None if it does not show them."""
    if not holds_changes(past.state.mode):
        return live_rows(past.state.mode)
    if not past.is_snapshot:
        return None
    return f"`{CHANGE.name}` = 'snapshot' AND `{COMMIT_LSN.name}` = {int(past.state.snapshot_lsn)}"
