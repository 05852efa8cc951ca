"""The work on one table: the landed windows that it is to be brought through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from spark_jobs.change_counts import NO_CHANGES, ChangeCounts
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.change_log.window_marker import SlotIdentity, WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import LakeError
from spark_jobs.lake.table_commit import Provenance
from spark_jobs.lake.table_state import TableState, table_state
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.qualified_name import QualifiedName

if TYPE_CHECKING:
    from spark_jobs.apply.regions_read import RegionsRead

# messages of one table's range that are decoded on the driver; of a larger one it never sees a row
ON_DRIVER_BYTES = 128 << 20


@dataclass(frozen=True)
class TableRange:
    """``markers``: landed windows in order, none missing, at least one. ``state``: the table's before them. ``before``:
    transactions that committed there or later are left out, where the last window is not to be applied whole.
    ``regions``: what is read again of the table at the end of the last window."""

    pipeline: Pipeline
    state: TableState
    markers: Sequence[WindowMarker]
    run_id: str = ""
    on_driver_bytes: int = ON_DRIVER_BYTES
    before: Lsn | None = None
    regions: RegionsRead | None = None

    @property
    def name(self) -> QualifiedName:
        return self.state.name

    @property
    def path(self) -> str:
        """Of the Delta table."""
        return self.pipeline.lake.table(self.name)

    @property
    def first(self) -> WindowMarker:
        return self.markers[0]

    @property
    def last(self) -> WindowMarker:
        return self.markers[-1]

    @property
    def identity(self) -> SlotIdentity:
        return self.last.identity

    def state_since(self) -> TableState | None:
        """As the table's own log has it now."""
        return table_state(self.pipeline.lake, self.name, *self.identity.stream)

    def state_now(self) -> TableState:
        """Another process may have written the table since ``state`` was read. Raises LakeError: it is gone."""
        now = self.state_since()
        if now is None:
            raise LakeError(f"{self.name}: its Delta table is gone", hint="run it again: it takes a new snapshot")
        if now.generation != self.state.generation:
            return now
        # what the cut knew of windows without changes holds on
        return replace(now, ordinal=max(now.ordinal, self.state.ordinal))

    def after(self, state: TableState) -> TableRange | None:
        """What is left of the range where the table is at ``state``: more than the range, where another process has put
        an older snapshot in its place; None at its end."""
        markers = self.markers
        if state.ordinal + 1 < self.first.ordinal:
            landed = ChangeLog(self.pipeline.lake.change_log).markers(state.ordinal)
            markers = tuple(marker for marker in landed if marker.ordinal <= self.last.ordinal)
        ahead = tuple(marker for marker in markers if marker.ordinal > state.ordinal)
        return replace(self, state=state, markers=ahead) if ahead else None

    def bytes_of(self, relid: int) -> int:
        """Length of all messages of one table in these windows, without a look at them."""
        return sum(counts.bytes for marker in self.markers for counts in marker.relations if counts.relid == relid)

    def columns_provenance(self, relid: int, columns: Sequence[str]) -> Provenance:
        """Of a commit before that one, which changes the columns alone: the table stays at its window."""
        whole = self.provenance(relid, NO_CHANGES, columns)
        lo = self.first.window.lo
        return replace(whole, first=self.state.ordinal, last=self.state.ordinal, lo=lo, hi=lo)

    def provenance(self, relid: int, changes: ChangeCounts, columns: Sequence[str] = ()) -> Provenance:
        """Of the commit that brings the table to the end of the range."""
        return Provenance(
            *self.identity.stream,
            generation=self.state.generation,
            snapshot_lsn=self.state.snapshot_lsn,
            first=self.first.ordinal,
            last=self.last.ordinal,
            lo=self.first.window.lo,
            hi=self.last.window.hi,
            relid=relid,
            commits=self.state.commits + 1,
            run_id=self.run_id,
            changes=changes,
            cause=self.state.cause,
            columns=tuple(columns),
            partitions=self.state.partitions,
        )
