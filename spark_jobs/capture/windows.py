"""Which windows to read next: a pure function of the log's end, the slot's position and the end of the WAL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile

from spark_jobs.configuration import WindowLimits
from spark_jobs.errors import BreakError, ConfigurationError, GapError
from spark_jobs.logicalrep.lsn import Lsn, Window

# of several windows: the server keeps in temporary files what a call returns until it is fetched, and the slot does not
# advance before
_BYTES_OF_A_CALL = 1 << 30


def plan_windows(
    landed_end: Lsn, confirmed_flush_lsn: Lsn, flushed_lsn: Lsn, limits: WindowLimits
) -> tuple[Window, ...]:
    """At most ``limits.max_per_run`` windows of at most ``limits.max_bytes`` of WAL each; empty when caught up.

    The first starts at ``landed_end``, each of the others where the one before it ends. The slot may be behind the log
    (a crash of the server can undo an advance); the caller advances it.

    Raises BreakError when the slot stands ahead of the log, or the WAL ends before it.
    """
    check_no_gap(landed_end, confirmed_flush_lsn, flushed_lsn)
    windows: list[Window] = []
    lo = landed_end
    while lo < flushed_lsn and len(windows) < limits.max_per_run:
        hi = Lsn(min(lo + limits.max_bytes, flushed_lsn))
        windows.append(Window(lo, hi))
        lo = hi
    return tuple(windows)


def windows_of_one_call(windows: Sequence[Window], restart_lsn: Lsn | None) -> tuple[Window, ...]:
    """The first of these adjacent windows, and those after it that the server had better decode with it.

    With each call it decodes from the slot's ``restart_lsn`` on. So one call is for as many windows as hold no more WAL
    than it would decode again for another call: over a backlog, it decodes at most twice what it sends.
    """
    lo = windows[0].lo
    again = lo - restart_lsn if restart_lsn is not None else 0
    end = lo + min(again, _BYTES_OF_A_CALL)
    return (windows[0], *takewhile(lambda window: window.hi <= end, windows[1:]))


def fit_windows(
    requested: Iterable[Window], landed_end: Lsn, confirmed_flush_lsn: Lsn, flushed_lsn: Lsn
) -> tuple[Window, ...]:
    """The parts of the requested windows that are not landed yet, in LSN order and without overlaps.

    Raises GapError when the requested windows leave changes out, BreakError as ``plan_windows`` does, and
    ConfigurationError when a window ends beyond the WAL.
    """
    check_no_gap(landed_end, confirmed_flush_lsn, flushed_lsn)
    fitted = []
    lo = landed_end
    for window in sorted(requested):
        if window.hi <= lo or not window.size:
            continue
        if window.lo > lo:
            raise GapError(
                f"the requested window {window} leaves a gap: the change log ends at {lo}",
                hint=f"capture the windows from {lo} on first",
            )
        if window.hi > flushed_lsn:
            raise ConfigurationError(
                f"the requested window {window} does not exist yet: the server's WAL ends at {flushed_lsn}",
                hint=f"request windows that end at {flushed_lsn} or before",
            )
        fitted.append(Window(lo, window.hi))
        lo = window.hi
    return tuple(fitted)


def check_no_gap(landed_end: Lsn, confirmed_flush_lsn: Lsn, flushed_lsn: Lsn) -> None:
    """Raise BreakError when the slot cannot send the changes that come after the landed ones."""
    if flushed_lsn < landed_end:
        raise BreakError(
            f"the server's WAL ends at {flushed_lsn}, before the change log, which ends at {landed_end}:"
            " it was restored from a backup"
        )
    if confirmed_flush_lsn > landed_end:
        raise BreakError(
            f"the slot stands at {confirmed_flush_lsn}, ahead of the change log, which ends at {landed_end}: it was"
            " re-created, read or moved by someone else, and the changes between are gone"
        )
