"""The windows that the newest chapter of the change log holds, and which of them an LSN or a range of LSNs means.

No table is brought from one chapter into the next, and LSNs of two chapters cannot be compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

from spark_jobs.change_log.log import ChangeLog
from spark_jobs.change_log.window_marker import SlotIdentity, WindowMarker
from spark_jobs.configuration import Lake, Pipeline
from spark_jobs.errors import ConfigurationError, GapError, LakeError
from spark_jobs.lake.past_states import PastState, past_states
from spark_jobs.lake.table_state import TableState
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.qualified_name import QualifiedName


@dataclass(frozen=True)
class LandedWindows:
    """``markers`` of the windows, in order, at least one."""

    path: str
    markers: tuple[WindowMarker, ...]

    @classmethod
    def of(cls, pipeline: Pipeline) -> LandedWindows:
        """Raises LakeError: there is no change log."""
        log = ChangeLog(pipeline.lake.change_log)
        landed = log.markers()
        markers = tuple(marker for marker in landed if marker.identity.chapter == landed[-1].identity.chapter)
        if not markers:
            raise LakeError(f"there is no change log at {log.path}", hint="`postgres-cdc sync` makes slot and log")
        return cls(log.path, markers)

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
        """The windows with a part in [lo, hi), whole. Raises ConfigurationError: no such range; GapError: the log does
        not hold all of it."""
        if lo >= hi:
            raise ConfigurationError(
                f"no range of LSNs: it begins at {lo} and ends at {hi}", hint="its end is exclusive"
            )
        self.require(lo)
        self.require(hi)
        return tuple(each for each in self.markers if each.window.hi > lo and each.window.lo < hi)

    def require(self, lsn: Lsn) -> None:
        """Raises GapError where the log does not reach ``lsn``."""
        if lsn < self.start:
            reaches = (
                "begins"
                if self.markers[0].ordinal == self.identity.chapter
                else "no longer reaches further back, and begins"
            )
            raise GapError(f"LSN {lsn} is not in the change log {self.path}: it {reaches} at {self.start}")
        if lsn > self.end:
            raise GapError(
                f"LSN {lsn} is not in the change log {self.path}: it ends at {self.end}",
                hint="`postgres-cdc capture` lands what the source has written since",
            )

    def after(self, ordinal: int, last: int) -> tuple[WindowMarker, ...]:
        """The windows behind ``ordinal``, up to ``last``. Raises GapError where the log no longer holds them all."""
        found = tuple(marker for marker in self.markers if ordinal < marker.ordinal <= last)
        if len(found) != max(0, last - ordinal):
            raise GapError(
                f"the change log {self.path} no longer holds windows {ordinal + 1} to {last}: it begins with window"
                f" {self.markers[0].ordinal}, at {self.start}"
            )
        return found

    def holds_after(self, ordinal: int) -> bool:
        """Whether none of the windows behind ``ordinal`` has gone."""
        return ordinal + 1 >= self.markers[0].ordinal

    def last_until(self, lsn: Lsn) -> int:
        """The ordinal of the last window that ends at or before ``lsn``; where none does, of the one before the log."""
        ends = [marker.ordinal for marker in self.markers if marker.window.hi <= lsn]
        return ends[-1] if ends else self.markers[0].ordinal - 1

    def past_states(self, lake: Lake, name: QualifiedName) -> Iterator[PastState]:
        """What the table was in this chapter, newest first. Raises LakeError."""
        of_lake = past_states(lake, name, self.identity)
        return takewhile(lambda past: past.state.ordinal >= self.identity.chapter, of_lake)

    def shown_by(self, state: TableState) -> Lsn:
        """The LSN as of which the table was: its snapshot's, or the end of the last window that it has; where the log
        no longer has that window, its start: the table is from there or before."""
        ends = [marker.window.hi for marker in self.markers if marker.ordinal <= state.ordinal]
        return max(state.snapshot_lsn, ends[-1] if ends else self.start)
