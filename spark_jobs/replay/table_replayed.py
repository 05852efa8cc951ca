"""What became of a range of windows that was replayed."""

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
    """Of the range's windows the table had ``already_applied`` so many, and has ``applied`` so many by this call.

    ``in its snapshot`` and ``not applied yet``: there was nothing to rebuild. ``rebuilt_from``: the Delta version that
    the new rows grew from. ``changes`` were seen, also those of windows before and behind the range; ``delta_version``
    is None where nothing was committed. ``stopped`` has an ``error``.
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
    """The whole windows ``first`` to ``last``, WAL [``lo``, ``hi``), that cover the range which was asked for."""

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
        """``windows``: those that cover the range, one at least."""
        first, last = windows[0], windows[-1]
        return cls(first.ordinal, last.ordinal, first.window.lo, last.window.hi, tables, errors)
