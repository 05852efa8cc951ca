"""Which range of partitions a run takes next, and which keys it needs: pure functions of keys and LSNs.

Anyone can add and delete partitions in the UI, and some may be left from an earlier chapter of the log, or another
lake. So a key is used only if it begins in the present chapter, continues the change log and ends within the server's
WAL; other keys are skipped, and windows without a key get one.
Landed windows that once had a key need none again, so old partitions may be deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from cdc_assets.partitions import uncovered, well_formed
from spark_jobs.logicalrep.lsn import Lsn, Window

# each partition of a run is an event for each table
_MOST_MARKED_PER_RUN = 500
_LEFT_OUT_NAMED = 3


@dataclass(frozen=True)
class PartitionState:
    """``keys`` in Dagster's order. ``begin``, ``landed_end``: the present chapter of the change log, or what retention
    has left of it. ``flushed`` WAL of the server.

    ``taken``: the end of the last range that a run was requested for in this chapter, 0 before the first.
    """

    keys: Sequence[str]
    begin: Lsn
    landed_end: Lsn
    flushed: Lsn
    taken: Lsn

    @property
    def done(self) -> Lsn:
        """The LSN up to which runs were requested and windows are landed."""
        return max(self.begin, min(self.taken, self.landed_end))

    @cached_property
    def known(self) -> list[Window]:
        """The partitions that may be of the present chapter, in LSN order: of others the LSNs are no measure."""
        return sorted(w for w in well_formed(self.keys) if self.begin <= w.lo and w.hi <= self.flushed)

    @property
    def keyed_end(self) -> Lsn:
        """Landed windows before this LSN have, or once had, their keys."""
        ends = (min(window.hi, self.landed_end) for window in self.known if window.lo <= self.landed_end)
        return max(self.done, max(ends, default=Lsn(0)))

    def left_out(self) -> str:
        """One line about the keys that are skipped, empty if there are none."""
        within = {window.key for window in well_formed(self.keys) if window.hi <= self.flushed}
        others = [key for key in self.keys if key not in within]
        if not others:
            return ""
        more = ", …" if len(others) > _LEFT_OUT_NAMED else ""
        named = ", ".join(map(repr, others[:_LEFT_OUT_NAMED])) + more
        return f"{len(others)} partitions skipped, no LSN windows or beyond the WAL at {self.flushed}: {named}"


@dataclass(frozen=True)
class RangePlan:
    """The windows of the next run, in LSN order and adjacent in Dagster's order; ``new_keys`` are to be added."""

    windows: tuple[Window, ...]
    new_keys: tuple[str, ...]


def plan_range(state: PartitionState, windows: Iterable[Window], max_per_run: int, *, again: bool) -> RangePlan:
    """The next range, empty if everything is done. ``windows``: those landed since ``keyed_end``, and those planned.

    ``again``: the last run failed, or has not read all of a large table. So if nothing else is left, the newest window
    is run again.
    """
    known, keyed_end = state.known, state.keyed_end
    new = uncovered(windows, [window for window in known if window.hi > keyed_end], keyed_end)
    pending = _pending([*known, *new], state)
    if not pending and again:
        landed = [window for window in known if window.hi <= state.landed_end]
        pending = sorted(landed, key=lambda window: window.hi)[-1:]
    # landed windows only have to be marked, which is cheap but not free
    landed_already = sum(window.hi <= state.landed_end for window in pending)
    most = min(landed_already + max_per_run, _MOST_MARKED_PER_RUN)
    added = [window.key for window in new]
    neighbours = _neighbours(pending[:most], [*state.keys, *added])
    keys = {window.key for window in neighbours}
    return RangePlan(tuple(neighbours), tuple(key for key in added if key in keys))


def _pending(windows: Iterable[Window], state: PartitionState) -> list[Window]:
    """The windows that were not requested yet, or are not landed, without a gap, each ending after the previous one."""
    pending = []
    end = state.done
    for window in sorted(windows):
        if window.lo > max(end, state.landed_end):
            break
        if window.hi > end:
            pending.append(window)
            end = window.hi
    return pending


def _neighbours(windows: Sequence[Window], keys: Sequence[str]) -> list[Window]:
    """The first windows whose keys are adjacent: Dagster's range is a slice of all keys as they were added."""
    at = {key: place for place, key in enumerate(keys)}
    first = at[windows[0].key] if windows else 0
    together = []
    for place, window in enumerate(windows, first):
        if at[window.key] != place:
            break
        together.append(window)
    return together
