"""The result of applying landed windows to one table, or to the messages table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from spark_jobs.apply.table_range import TableRange
from spark_jobs.change_log.change_counts import NO_CHANGES, ChangeCounts
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.errors import CdcError
from spark_jobs.lake.table_state import PartitionsRead, Strategy, TableState
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.writers.write_choice import Engine

Outcome = Literal["applied", "nothing to apply", "already applied", "stopped"]


@dataclass(frozen=True)
class TableApplied:
    """One table brought to the end of window ``last``: the changes seen, and the rows written.

    ``first`` to ``last`` are window ordinals, [``lo``, ``hi``) is their WAL. With outcome ``nothing to apply`` or
    ``already applied`` no commit was made and ``delta_version`` is None; with ``stopped`` there is an ``error``, and
    earlier commits of this call stand. ``columns`` has a phrase for each change of the table's columns. ``engine`` made
    the newest commit, and ``strategy`` says how; None if there is none. ``state`` is the table's state afterwards.
    ``partitions`` is set when only these partitions of the table were read again.
    """

    name: QualifiedName
    first: int
    last: int
    lo: Lsn
    hi: Lsn
    outcome: Outcome
    changes: ChangeCounts = NO_CHANGES
    rows_written: int = 0
    delta_version: int | None = None
    columns: tuple[str, ...] = ()
    engine: Engine | None = None
    strategy: Strategy | None = None
    state: TableState | None = None
    error: CdcError | None = None
    partitions: PartitionsRead | None = None

    @classmethod
    def nothing_of(cls, work: TableRange) -> TableApplied:
        """No window of the range changes the table."""
        ends = work.first.ordinal, work.last.ordinal, work.first.window.lo, work.last.window.hi
        return cls(work.name, *ends, "nothing to apply", state=work.state)

    @classmethod
    def without_commit(
        cls,
        name: QualifiedName,
        at: WindowMarker,
        outcome: Outcome = "nothing to apply",
        *,
        state: TableState | None = None,
        error: CdcError | None = None,
    ) -> TableApplied:
        """At the end of window ``at``; ``stopped`` there if there is an ``error``."""
        return cls(
            name,
            at.ordinal,
            at.ordinal,
            at.window.hi,
            at.window.hi,
            "stopped" if error else outcome,
            state=state,
            error=error,
        )

    def after(self, before: TableApplied | None) -> TableApplied:
        """This result merged with that of the sync's earlier rounds."""
        if before is None:
            return self
        return replace(
            self,
            first=before.first,
            lo=before.lo,
            outcome=before.outcome if self._adds_nothing_to(before) else self.outcome,
            changes=before.changes + self.changes,
            columns=before.columns + self.columns,
            partitions=self.partitions or before.partitions,
            rows_written=before.rows_written + self.rows_written,
            delta_version=before.delta_version if self.delta_version is None else self.delta_version,
            engine=self.engine or before.engine,
            strategy=self.strategy or before.strategy,
        )

    def _adds_nothing_to(self, before: TableApplied) -> bool:
        """Whether the outcome is still that of ``before``. What another process has applied since is no news then."""
        return self.outcome == "nothing to apply" or (self.outcome == "already applied" and before.outcome == "applied")
