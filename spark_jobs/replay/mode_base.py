"""Which version of a table it is rebuilt from in another form, and the first rows that it has then.

In another mode: one that shows the source's rows, with all later windows in the change log, and with files that still
exist."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.errors import GapError, NeedsSnapshotError
from spark_jobs.lake.past_states import PastState
from spark_jobs.lake.table_state import TableState
from spark_jobs.options.table_mode import Form, holds_changes, keeps_past
from spark_jobs.replay.landed_windows import LandedWindows
from spark_jobs.schema.mode_columns import CHANGE, COMMIT_LSN, live_rows, own_columns
from spark_jobs.schema.moment import Moment
from spark_jobs.spark.errors import spark_errors
from spark_jobs.spark.provider import SparkProvider
from spark_jobs.spark.session import isolated_session
from spark_jobs.writers.with_spark.delta_table import is_readable, table_at, table_columns, with_metadata
from spark_jobs.writers.with_spark.past_rows import snapshot_rows, with_commit_columns

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
        theirs = rows.where(_source_rows(self.base) or "false")
        theirs = theirs.drop(*(column.name for column in own_columns(state.generation.form)))
        return with_metadata(snapshot_rows(theirs, self.form, self.since), columns, self.form)


def _source_rows(past: PastState) -> str | None:
    """The SQL condition for the source's rows in a past version of a table; None if it does not show them."""
    if not holds_changes(past.state.mode):
        return live_rows(past.state.mode)
    if not past.is_snapshot or past.state.generation.is_empty:
        return None
    return f"`{CHANGE.name}` = 'snapshot' AND `{COMMIT_LSN.name}` = {int(past.state.snapshot_lsn)}"


def same_mode(landed: LandedWindows, state: TableState, form: Form) -> OtherForm:
    """The base for other commit columns alone: the newest version, with all that its mode keeps."""
    newest = next(_of_snapshot(landed, state), None)
    if newest is None:
        raise NeedsSnapshotError("Delta's log has no commit of ours any more")
    base = replace(newest, state=state)
    return OtherForm(form, base, _moment(landed, base))


def other_mode(spark: SparkProvider, landed: LandedWindows, state: TableState, form: Form) -> OtherForm:
    """The base for ``form``: the oldest readable version that grew from the snapshot of ``state``, as it gives the
    longest past. For ``mirror``, which has no past, the newest.

    Raises GapError or NeedsSnapshotError if there is no such version.
    """
    bases = _bases(landed, state)
    if not keeps_past(form.mode):
        bases = bases[-1:]
    path = landed.lake.table(state.name)

    def can_be_read(index: int) -> bool:
        unreadable = spark_errors(f"{state.name} cannot be read", name=state.name, path=path)
        with unreadable, isolated_session(spark(), {}) as own:
            return is_readable(own, path, bases[index].state.version)

    # VACUUM makes older versions unreadable first
    first = 0 if can_be_read(0) else bisect_left(range(len(bases)), True, lo=1, key=can_be_read)
    if first == len(bases):
        raise NeedsSnapshotError("a VACUUM has removed files of the versions that it could be made from")
    return OtherForm(form, bases[first], _moment(landed, bases[first]))


def _bases(landed: LandedWindows, state: TableState) -> Sequence[PastState]:
    """The versions to choose from, oldest first, at least one."""
    shown = [past for past in _of_snapshot(landed, state) if _source_rows(past) is not None]
    if not shown:
        raise NeedsSnapshotError(f"Delta's log has no version that shows the source's rows, only such in {state.mode}")
    # the newest version also shows later windows that did not change the table; the log may have lost these windows
    now = [replace(past, state=state) for past in shown[:1] if past.state.commits == state.commits]
    led_on = [past for past in shown if landed.holds_after(past.state.ordinal)] or now
    if not led_on or not landed.holds_after(led_on[0].state.ordinal):
        raise GapError(f"the change log begins at {landed.start}, and does not lead on from any version of the table")
    return led_on[::-1]


def _of_snapshot(landed: LandedWindows, state: TableState) -> Iterator[PastState]:
    """The table's past states since its snapshot, in any form, newest first."""
    for past in landed.past_states(state.name):
        if past.state.generation.in_form(state.generation.form) != state.generation:
            return
        yield past


def _moment(landed: LandedWindows, base: PastState) -> Moment:
    """The LSN that the version shows, and the time of that: the version's commit or the source's next transaction,
    whichever is earlier. Both came after that LSN."""
    lsn = landed.shown_by(base.state)
    behind = (pc.field("commit_lsn") >= int(lsn)) & pc.field("commit_time").is_valid()
    windows = pc.field("window") > base.state.ordinal
    batches = list(landed.log.scan(windows & behind, ["commit_time"]))
    if not batches:
        return Moment(lsn, base.at)
    earliest: int = pc.min(pc.cast(pa.Table.from_batches(batches).column("commit_time"), pa.int64())).as_py()
    return Moment(lsn, min(base.at, earliest))
