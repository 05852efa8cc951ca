"""The first rows of a table in another mode: those that the source had at one LSN, by one of the table's versions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_jobs.errors import NeedsSnapshotError
from spark_jobs.lake.delta_table import table_at, table_columns, with_attribute_numbers
from spark_jobs.lake.past_rows import Moment, snapshot_rows
from spark_jobs.lake.past_states import PastState
from spark_jobs.schema.mode_columns import CHANGE, COMMIT_LSN, live_rows, mode_columns
from spark_jobs.table_mode import Mode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class OtherMode:
    """``mode`` instead of the one of ``base``, a version of the table that shows the source's rows at ``since``; the
    new table knows them since then."""

    mode: Mode
    base: PastState
    since: Moment

    def rows(self, spark: SparkSession, path: str) -> DataFrame:
        """``path``: of the table itself. Raises NeedsSnapshotError: the source has a column of the mode's name."""
        state = self.base.state
        columns, shown = table_columns(spark, path, state.version), source_rows(self.base)
        ours = {column.name.lower() for column in mode_columns(self.mode)}
        if taken := [column.name for column in columns if column.name.lower() in ours]:
            raise NeedsSnapshotError(f"{state.name} has columns that mode {self.mode} adds itself: {', '.join(taken)}")
        held = table_at(spark, path, state.version).where(shown or "false")
        theirs = held.drop(*(column.name for column in mode_columns(state.mode)))
        return with_attribute_numbers(snapshot_rows(theirs, self.mode, self.since), columns, self.mode)


def source_rows(past: PastState) -> str | None:
    """The condition in SQL by which a past version of a table shows the source's rows; None: it does not show them."""
    if past.state.mode != "append":
        return live_rows(past.state.mode)
    if not past.is_snapshot:
        return None
    return f"`{CHANGE.name}` = 'snapshot' AND `{COMMIT_LSN.name}` = {int(past.state.snapshot_lsn)}"
