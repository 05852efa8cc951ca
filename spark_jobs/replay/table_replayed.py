"""The result of replaying a range of windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from spark_jobs.change_counts import NO_CHANGES, ChangeCounts
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.errors import CdcError
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.qualified_name import QualifiedName

Outcome = Literal[
    "applied", "nothing to apply", "already applied", "rebuilt", "in its snapshot", "not applied yet", "stopped"
]


@dataclass(frozen=True)
class TableReplayed:
    """``already_applied``: how many of the range's windows the table had before. ``applied``: how many this call added.

    With outcome ``in its snapshot`` or ``not applied yet`` there was nothing to rebuild; with ``stopped`` there is an
    ``error``. ``rebuilt_from``: the Delta version that the table was rebuilt from. ``changes``: those in all windows
    that were applied, also before and after the range. ``delta_version`` is None if nothing was committed.
    """

    name: QualifiedName
    outcome: Outcome
    already_applied: int = 0
    applied: int = 0
    rebuilt_from: int | None = None
    changes: ChangeCounts = NO_CHANGES
    rows_written: int = 0
    delta_version: int | None = None
    error: CdcError | None = None


@dataclass(frozen=True)
class ReplayReport:
    """The windows ``first`` to ``last``, WAL [``lo``, ``hi``), that cover the range that was asked for."""

    first: int
    last: int
    lo: Lsn
    hi: Lsn
    tables: tuple[TableReplayed, ...]
    errors: tuple[CdcError, ...] = ()

    @classmethod
    def of(
        cls, windows: Sequence[WindowMarker], tables: tuple[TableReplayed, ...], errors: tuple[CdcError, ...]
    ) -> ReplayReport:
        """``windows``: those that cover the range, at least one."""
        first, last = windows[0], windows[-1]
        return cls(first.ordinal, last.ordinal, first.window.lo, last.window.hi, tables, errors)
