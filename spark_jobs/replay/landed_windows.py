"""The windows of the change log's newest chapter, found by an LSN or a range of LSNs.

Tables do not go on from one chapter to the next, and LSNs of different chapters cannot be compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

from spark_jobs.change_log.log import ChangeLog, no_change_log
from spark_jobs.change_log.window_marker import SlotIdentity, WindowMarker
from spark_jobs.configuration import Lake, Pipeline
from spark_jobs.errors import ConfigurationError, GapError
from spark_jobs.lake.past_states import PastState, past_states
from spark_jobs.lake.table_state import TableState
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.qualified_name import QualifiedName


@dataclass(frozen=True)
class LandedWindows:
    """``markers``: those of the windows, in order, at least one. They are those of the newest chapter in ``log``."""

    log: ChangeLog
    markers: tuple[WindowMarker, ...]

    @classmethod
    def of(cls, pipeline: Pipeline) -> LandedWindows:
        """The windows in the pipeline's change log. Raises LakeError if there is none."""
        log = ChangeLog(pipeline.lake.change_log)
        landed = log.markers()
        markers = tuple(marker for marker in landed if marker.identity.chapter == landed[-1].identity.chapter)
        if not markers:
            raise no_change_log(log.path)
        return cls(log, markers)

    @property
    def identity(self) -> SlotIdentity:
        return self.markers[-1].identity

    @property
    def start(self) -> Lsn:
        return self.markers[0].window.lo

    @property
    def end(self) -> Lsn:
        return self.markers[-1].window.hi

    def between(self, lo: Lsn, hi: Lsn) -> tuple[WindowMarker, ...]:
        """The windows that overlap [lo, hi). Raises ConfigurationError if the range is empty, GapError if the log does
        not hold all of it."""
        if lo >= hi:
            raise ConfigurationError(
                f"the range of LSNs is empty: it begins at {lo} and ends at {hi}", hint="its end is exclusive"
            )
        self.require(lo)
        self.require(hi)
        return tuple(each for each in self.markers if each.window.hi > lo and each.window.lo < hi)

    def require(self, lsn: Lsn) -> None:
        """Raises GapError if the log does not reach ``lsn``."""
        if lsn < self.start:
            reaches = (
                "begins"
                if self.markers[0].ordinal == self.identity.chapter
                else "no longer reaches further back, and begins"
            )
            raise GapError(f"LSN {lsn} is not in the change log {self.log.path}: it {reaches} at {self.start}")
        if lsn > self.end:
            raise GapError(
                f"LSN {lsn} is not in the change log {self.log.path}: it ends at {self.end}",
                hint="`postgres-cdc capture` lands what the source has written since",
            )

    def after(self, ordinal: int, last: int) -> tuple[WindowMarker, ...]:
        """The windows after ``ordinal``, up to ``last``. Raises GapError if the log no longer holds all of them."""
        found = tuple(marker for marker in self.markers if ordinal < marker.ordinal <= last)
        if len(found) != max(0, last - ordinal):
            raise GapError(
                f"the change log {self.log.path} no longer holds windows {ordinal + 1} to {last}: it begins with window"
                f" {self.markers[0].ordinal}, at {self.start}"
            )
        return found

    def holds_after(self, ordinal: int) -> bool:
        """Whether the log still holds all windows after ``ordinal``."""
        return ordinal + 1 >= self.markers[0].ordinal

    def last_until(self, lsn: Lsn) -> int:
        """The ordinal of the last window that ends at or before ``lsn``; if none does, the one before the first."""
        ends = [marker.ordinal for marker in self.markers if marker.window.hi <= lsn]
        return ends[-1] if ends else self.markers[0].ordinal - 1

    def past_states(self, lake: Lake, name: QualifiedName) -> Iterator[PastState]:
        """The table's past states in this chapter, newest first. Raises LakeError."""
        of_lake = past_states(lake, name, self.identity)
        return takewhile(lambda past: past.state.ordinal >= self.identity.chapter, of_lake)

    def shown_by(self, state: TableState) -> Lsn:
        """The LSN at which ``state`` shows the source: its snapshot's, or the end of its last window. If the log no
        longer holds that window, the log's start: then the state is of that LSN or an earlier one."""
        ends = [marker.window.hi for marker in self.markers if marker.ordinal <= state.ordinal]
        return max(state.snapshot_lsn, ends[-1] if ends else self.start)
