"""Begins new generations of tables: in another mode from the lake's own data if possible, else with a snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_jobs.errors import (
    CdcError,
    DecodeError,
    GapError,
    NeedsSnapshotError,
    PreconditionError,
    SnapshotGoesOnError,
    SnapshotWaitsError,
    UnrepresentableError,
)
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.replay.change_mode import ModeChanged, change_modes
from spark_jobs.run import Run
from spark_jobs.snapshot.exporter import Exporter
from spark_jobs.snapshot.snapshot import snapshot
from spark_jobs.snapshot.snapshot_tables import TableSnapshot

# errors of a rebuild from the change log and older Delta versions after which the table is read from the source
_NEEDS_SOURCE = (GapError, NeedsSnapshotError, DecodeError, UnrepresentableError, PreconditionError)


@dataclass(frozen=True)
class NewGenerations:
    """The generations that were begun: ``modes`` without a snapshot, ``snapshots`` from the source."""

    modes: tuple[ModeChanged, ...] = ()
    snapshots: tuple[TableSnapshot, ...] = ()

    @property
    def names(self) -> tuple[QualifiedName, ...]:
        return (*(table.name for table in self.modes), *(table.name for table in self.snapshots))

    @property
    def errors(self) -> dict[QualifiedName, CdcError]:
        """Those of the tables whose generation could not be begun: they keep what they held."""
        errors = {table.name: table.error for table in self.modes if table.error is not None}
        return errors | {table.name: table.error for table in self.snapshots if table.error is not None}

    @property
    def waiting(self) -> dict[QualifiedName, str]:
        """The tables whose snapshot waits for an open transaction, each with the reason of the snapshot."""
        return {table.name: table.reason for table in self.snapshots if isinstance(table.error, SnapshotWaitsError)}

    @property
    def goes_on(self) -> bool:
        """Whether some snapshot is read in part, and another call reads on."""
        return any(isinstance(table.error, SnapshotGoesOnError) for table in self.snapshots)

    def then(self, later: NewGenerations) -> NewGenerations:
        """Both together. A table that waited, and was tried again, is one of the later ones."""
        earlier = (table for table in self.snapshots if table.name not in self.waiting.keys() & set(later.names))
        return NewGenerations((*self.modes, *later.modes), (*earlier, *later.snapshots))


def begin_generations(run: Run, wanted: Mapping[QualifiedName, str], exporter: Exporter) -> NewGenerations:
    """Begin a generation for each of the tables that are ``wanted``, each with the reason why it must be read from the
    source, empty if there is none. Without a reason, a table that is in another mode than configured is rebuilt without
    the source; if that is not possible, and for all other tables, a snapshot is taken.

    A table that fails, or whose snapshot waits for an open transaction, is reported with its error, and keeps what it
    held. Raises the other errors of ``snapshot``.
    """
    reasons = {name: why for name, why in wanted.items() if why}
    without = [name for name in wanted if name not in reasons]
    done = change_modes(run, without) if without else ()
    unreached = {table.name: table for table in done if isinstance(table.error, _NEEDS_SOURCE)}
    modes = tuple(table for table in done if table.name not in unreached)
    why = {**reasons, **{name: _why_snapshot(table) for name, table in unreached.items()}}
    rest = [name for name in wanted if name not in {table.name for table in modes}]
    if not rest:
        return NewGenerations(modes)
    snapshots = snapshot(run, rest, reasons=why, exporter=exporter, asked=False)
    return NewGenerations(modes, snapshots)


def _why_snapshot(table: ModeChanged) -> str:
    assert table.error is not None
    if table.before == table.mode:
        return f"{table.name} needs a re-snapshot: metadata_columns changed, and {table.error.what}"
    modes = f"its mode was {table.before} and is {table.mode}"
    return f"{table.name} needs a re-snapshot: {modes}, and the change log does not lead there: {table.error.what}"
