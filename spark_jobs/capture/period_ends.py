"""Windows end where days and hours do: between two transactions, by the source's own commit times.

An end splits the order of commits before the first transaction that committed after it, as ``recovery_target_time``
does (``change_log/commit_times.py``). Which one that is shows while a window is read. The window is then read again up
to there. On a quiet source no transaction tells; then its clock does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.change_log.window_marker import PeriodsSeen, WindowMarker
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.options.time_partitions import Periods, ends_of
from spark_jobs.postgres.flushed_wal import SourceClock

# a transaction takes its commit time shortly before its place in the WAL
_COMMITTING = timedelta(seconds=10)
_MICROSECOND = timedelta(microseconds=1)


class PeriodEndsError(Exception):
    """``ends`` lie within the window that is being read: it has to end at ``lsn``."""

    def __init__(self, lsn: Lsn, ends: tuple[datetime, ...]) -> None:
        super().__init__(f"a day or hour ends at {lsn}")
        self.lsn, self.ends = lsn, ends


@dataclass
class PeriodEnds:
    """Of one window, from ``start`` on. ``settled``: every transaction of earlier windows had committed by then.
    ``ends``: what is known to end with this window."""

    periods: Sequence[Periods]
    start: Lsn
    settled: datetime
    ends: tuple[datetime, ...] = ()

    def look_at(self, rows: pa.RecordBatch) -> None:
        """At the next rows of the window. Raises PeriodEndsError."""
        times, lsns = rows.column("commit_time"), rows.column("commit_lsn")
        newest: datetime | None = pc.max(times).as_py()
        if newest is None:
            return
        # those of `ends` lie before transactions of the next window only
        boundaries = ends_of(self.periods, self.settled, newest - _MICROSECOND)
        if not boundaries:
            self.settled = max(self.settled, newest)
            self.start = max(self.start, Lsn(pc.max(lsns.filter(times.is_valid())).as_py() + 1))
            return
        later = pc.min(lsns.filter(pc.greater(times, boundaries[0])))
        before = pc.max(lsns.filter(pc.and_(times.is_valid(), pc.less(lsns, later)))).as_py()
        at = self.start if before is None else Lsn(before + 1)
        first: datetime = pc.min(times.filter(pc.equal(lsns, later))).as_py()
        raise PeriodEndsError(at, ends_of(self.periods, self.settled, first - _MICROSECOND))

    def by_clock(self, clock: SourceClock, end: Lsn) -> tuple[datetime, ...]:
        """What ends with a window that ends at ``end``, if it holds all that had committed by then."""
        if clock.time is None or end < clock.flushed:
            return ()
        return ends_of(self.periods, self.settled, clock.time - _COMMITTING)

    def ending(self, clock: SourceClock, end: Lsn) -> PeriodEnds:
        """With what the clock says, now that the window is read up to ``end``."""
        return self if self.ends else replace(self, ends=self.by_clock(clock, end))

    @property
    def seen(self) -> PeriodsSeen:
        """For the window's marker."""
        settled = max([self.settled, *self.ends])
        return PeriodsSeen(settled.isoformat(), tuple(end.isoformat() for end in self.ends))


def period_ends(periods: Sequence[Periods], landed: WindowMarker, clock: SourceClock | None) -> PeriodEnds | None:
    """Of the window after ``landed``. None without ``periods``, and as long as no time is known to begin with: in a new
    chapter, or with newly configured ``periods``, that is the source's present time."""
    if not periods or clock is None:
        return None
    settled = datetime.fromisoformat(landed.periods.settled) if landed.periods is not None else clock.time
    return None if settled is None else PeriodEnds(periods, landed.window.hi, settled.astimezone(UTC))
