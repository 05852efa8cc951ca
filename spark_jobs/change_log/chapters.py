"""Which LSNs the change log holds, chapter by chapter: what was landed, and what can no longer be.

LSNs are comparable within one chapter only. A later chapter may begin at higher LSNs, with a gap before it, or at lower
ones: another cluster, a restored backup.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from spark_jobs.change_log.window_marker import ChapterBreak, WindowMarker
from spark_jobs.errors import GapError, LakeError
from spark_jobs.logicalrep.lsn import Lsn, Window

if TYPE_CHECKING:
    from spark_jobs.change_log.log import ChangeLog


@dataclass(frozen=True)
class Chapter:
    """``landed``: what the log holds of this chapter, from its beginning or from where retention has cut it.

    ``first``: the ordinal of the chapter's first marker; ``broke``: why it began, None for the log's first chapter and
    if retention has removed that marker, which ``is_whole`` tells apart. ``began``: when it did, if that is known; a
    break, when it was noticed.
    """

    first: int
    landed: Window
    is_whole: bool
    broke: ChapterBreak | None = None
    began: datetime | None = None

    def holds(self, window: Window) -> bool:
        """Whether the landed windows of this chapter cover all of ``window``."""
        return self.landed.lo <= window.lo and window.hi <= self.landed.hi

    def misses(self, window: Window) -> bool:
        """Whether ``window`` has a part between the chapter before, as it was left, and this one."""
        return self.broke is not None and window.hi > self.broke.end and window.lo < self.landed.lo


@dataclass(frozen=True)
class Chapters:
    """Those that the log still has, oldest first, at least one."""

    all: tuple[Chapter, ...]

    @property
    def present(self) -> Chapter:
        """The one that the next windows belong to."""
        return self.all[-1]

    def begun_after(self, time: datetime) -> Chapter | None:
        """The first chapter that is known to have begun after ``time``: none from there on shows what was committed by
        then."""
        return next((each for each in self.all if each.began is not None and each.began > time), None)

    def hold(self, window: Window) -> bool:
        """Whether one chapter holds all of ``window``."""
        return any(chapter.holds(window) for chapter in self.all)

    def lost(self, window: Window) -> bool:
        """Whether ``window`` has a part that was never landed and never can be, since the slot no longer sends it.

        What retention has removed was landed. Windows from the present chapter's beginning on may still be landed.
        """
        if window.lo >= self.present.landed.lo or self.hold(window):
            return False
        nothing_removed = self.all[0].first == 0 and self.all[0].is_whole
        return nothing_removed or any(chapter.misses(window) for chapter in self.all)

    def is_of_earlier(self, window: Window) -> bool:
        """Whether ``window`` begins before the present chapter. False if retention has removed that beginning."""
        return self.present.is_whole and window.lo < self.present.landed.lo


def begun_later(log: ChangeLog, began: datetime, time: datetime) -> GapError:
    """The error for a ``time`` before the chapter that ``began`` then."""
    return GapError(
        f"nothing shows what was committed by {time.isoformat()}: the change log {log.path}, or its newest chapter,"
        f" began at {began.isoformat()}",
        hint="choose a later time",
    )


def chapters_of(log: ChangeLog) -> Chapters | None:
    """The chapters of ``log``, None before its first window. The cost depends on the number of breaks, not of windows.
    Raises LakeError."""
    last, oldest = log.checkpoint(), log.first_window()
    if last is None or oldest is None:
        return None
    return Chapters(tuple(reversed(list(_backwards(log, oldest, last)))))


def _backwards(log: ChangeLog, oldest: WindowMarker, last: WindowMarker) -> Iterator[Chapter]:
    """From the last chapter to the one that ``oldest``, the first marker left, belongs to."""
    end, first = last.window.hi, last.identity.chapter
    while first > oldest.ordinal:
        marker = log.marker(first)
        if marker is None or marker.broke is None:
            raise LakeError(f"the change log {log.path} lacks the marker that begins its chapter, window {first}")
        yield Chapter(first, Window(marker.window.lo, end), True, marker.broke, marker.began)
        end, first = Lsn(marker.broke.end), marker.broke.before.chapter
    yield Chapter(first, Window(oldest.window.lo, end), oldest.ordinal == first, oldest.broke, oldest.began)
