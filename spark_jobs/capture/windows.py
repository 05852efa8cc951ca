"""Which windows to read next: a pure function of where the log ends, where the slot stands and how far the WAL goes."""

from __future__ import annotations

from collections.abc import Iterable

from spark_jobs.configuration import WindowLimits
from spark_jobs.errors import BreakError, ConfigurationError, GapError
from spark_jobs.logicalrep.lsn import Lsn, Window


def plan_windows(
    landed_end: Lsn, confirmed_flush_lsn: Lsn, flushed_lsn: Lsn, limits: WindowLimits
) -> tuple[Window, ...]:
    """The next windows, at most ``limits.max_per_run`` of at most ``limits.max_bytes`` of WAL; empty when caught up.

    The first starts at ``landed_end`` and each where the one before it ended. A slot that stands behind the log is
    fine (an advance is forgotten when the server crashes): the caller moves it up.

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


def fit_windows(
    requested: Iterable[Window], landed_end: Lsn, confirmed_flush_lsn: Lsn, flushed_lsn: Lsn
) -> tuple[Window, ...]:
    """The part of the requested windows that is still to be read, in LSN order.

    What is landed is cut off, as is what an earlier requested window covers; what is wholly landed falls away.

    Raises GapError when the requested windows leave changes out, BreakError as above, ConfigurationError when one ends
    beyond the WAL.
    """
    check_no_gap(landed_end, confirmed_flush_lsn, flushed_lsn)
    fitted = []
    lo = landed_end
    for window in sorted(requested):
        if window.hi <= lo or not window.size:
            continue
        if window.lo > lo:
            raise GapError(
                f"the window {window} was asked for, but the change log ends at {lo}",
                hint=f"capture the windows from {lo} on first",
            )
        if window.hi > flushed_lsn:
            raise ConfigurationError(
                f"the window {window} was asked for, but the server's WAL ends at {flushed_lsn}",
                hint=f"ask for windows that end at {flushed_lsn} or before",
            )
        fitted.append(Window(lo, window.hi))
        lo = window.hi
    return tuple(fitted)


def check_no_gap(landed_end: Lsn, confirmed_flush_lsn: Lsn, flushed_lsn: Lsn) -> None:
    """Raise BreakError when the slot no longer has the changes that follow what is landed."""
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
