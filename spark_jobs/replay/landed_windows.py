"""The windows of one chapter of the change log, mostly its newest, found by an LSN, a time or a range of LSNs.

Tables do not go on from one chapter to the next, and LSNs of different chapters cannot be compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import groupby, takewhile

from spark_jobs.change_log.chapters import begun_later
from spark_jobs.change_log.commit_times import LoggedCommit, first_commit_after, holds_commit_before
from spark_jobs.change_log.log import ChangeLog, no_change_log
from spark_jobs.change_log.window_marker import SlotIdentity, WindowMarker
from spark_jobs.configuration import Lake, Pipeline
from spark_jobs.errors import ConfigurationError, GapError
from spark_jobs.lake.past_states import PastState, past_states
from spark_jobs.lake.table_state import TableState
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.replay.points import Point


@dataclass(frozen=True)
class LandedWindows:
    """``markers``: those of the windows, in order, at least one. They are all that the log of ``lake`` has of one
    chapter."""

    lake: Lake
    markers: tuple[WindowMarker, ...]

    @classmethod
    def of(cls, pipeline: Pipeline) -> LandedWindows:
        """Those of the newest chapter in the pipeline's change log. Raises LakeError if there is none."""
        return cls.of_each_chapter(pipeline.lake)[-1]

    @classmethod
    def of_each_chapter(cls, lake: Lake) -> tuple[LandedWindows, ...]:
        """Oldest chapter first, at least one. Raises LakeError if there is no change log."""
        log = ChangeLog(lake.change_log)
        chapters = groupby(log.markers(), lambda marker: marker.identity.chapter)
        windows = tuple(cls(lake, tuple(markers)) for _, markers in chapters)
        if not windows:
            raise no_change_log(log.path)
        return windows

    @cached_property
    def log(self) -> ChangeLog:
        return ChangeLog(self.lake.change_log)

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

    def lsn_of(self, at: Point) -> Lsn:
        """The LSN of ``at``: of a time, that of the first commit after it. Raises GapError if the log does not reach
        that point."""
        if not isinstance(at, datetime):
            self.require(at)
            return at
        after = self._first_after(at)
        if after is None:
            raise GapError(
                f"the change log {self.log.path} holds no transaction that committed after {at.isoformat()}, so it may"
                f" not hold all before; it ends at {self.end}",
                hint=f"`postgres-cdc capture` first, or take the LSN {self.end}",
            )
        return after.lsn

    def begin_of(self, at: Point) -> Lsn:
        """As ``lsn_of``, but a time after the last commit is the end of the log: nothing was committed since."""
        if isinstance(at, datetime) and self._first_after(at) is None:
            return self.end
        return self.lsn_of(at)

    def _first_after(self, at: datetime) -> LoggedCommit | None:
        """The first commit after ``at``, None if the log ends before one. Raises GapError if ``at`` lies before this
        chapter, or before what is left of it."""
        after = first_commit_after(self.log, at)
        if after is not None and after.window < self.identity.chapter:
            raise GapError(
                f"{at.isoformat()} lies before the break at which the newest chapter of the change log begins"
                f" ({self.log.path}, window {self.identity.chapter})",
                hint="`postgres-cdc cut --at TIME` names the Delta versions of that time",
            )
        began = self.markers[0].began
        # a slot that existed before has sent what was committed earlier, too
        if began is not None and at < began and not holds_commit_before(self.log, after, self.identity.chapter):
            raise begun_later(self.log, began, at)
        return after

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
        markers = tuple(marker for marker in self.markers if ordinal < marker.ordinal <= last)
        if len(markers) != max(0, last - ordinal):
            raise GapError(
                f"the change log {self.log.path} no longer holds windows {ordinal + 1} to {last}: it begins with window"
                f" {self.markers[0].ordinal}, at {self.start}"
            )
        return markers

    def holds_after(self, ordinal: int) -> bool:
        """Whether the log still holds all windows after ``ordinal``."""
        return ordinal + 1 >= self.markers[0].ordinal

    def last_until(self, lsn: Lsn) -> int:
        """The ordinal of the last window that ends at or before ``lsn``; if none does, the one before the first."""
        ends = [marker.ordinal for marker in self.markers if marker.window.hi <= lsn]
        return ends[-1] if ends else self.markers[0].ordinal - 1

    def past_states(self, name: QualifiedName) -> Iterator[PastState]:
        """The table's past states in this chapter, newest first. Raises LakeError."""
        every = past_states(self.lake, name, self.identity)
        return takewhile(lambda past: past.state.ordinal >= self.identity.chapter, every)

    def shown_by(self, state: TableState) -> Lsn:
        """The LSN at which ``state`` shows the source: its snapshot's, or the end of its last window. If the log no
        longer holds that window, the log's start: then the state is of that LSN or an earlier one."""
        ends = [marker.window.hi for marker in self.markers if marker.ordinal <= state.ordinal]
        return max(state.snapshot_lsn, ends[-1] if ends else self.start)
