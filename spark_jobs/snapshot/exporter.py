"""Exports snapshots without blocking the caller while the server waits for open transactions.

To find the LSN of a snapshot, the server waits until each transaction has ended that is open and has written, in any
database: a session that is idle in transaction for an hour makes every new snapshot wait for an hour. Only the session
that asked has to wait. So a caller asks once, waits a moment, goes on with other tables, and looks again later.
https://www.postgresql.org/docs/current/protocol-replication.html (CREATE_REPLICATION_SLOT)
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING

import psycopg
from psycopg import pq, sql
from pydantic import SecretStr

from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.errors import PreconditionError, SlotError, SnapshotWaitsError, SourceError
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.postgres.connection import Connection, connected, source_errors
from spark_jobs.postgres.open_transactions import OpenTransaction, oldest_transaction
from spark_jobs.postgres.provider import provider_of
from spark_jobs.postgres.refusals import is_lost, lost_connection
from spark_jobs.postgres.replication import execute, has_answered, refusal, replication_connection, send, sent_answer
from spark_jobs.progress import Progress, Step, silent
from spark_jobs.snapshot.export import ExportedSnapshot

if TYPE_CHECKING:
    from typing import Self

_log = logging.getLogger(__name__)

# an export that waits for nothing takes less
_MOMENT_SECONDS = 1.0
_LOOK_EVERY_SECONDS = 0.5
# how long the server itself waits for each transaction, should this process die
_LOCK_TIMEOUT = "15min"


@dataclass(frozen=True)
class Patience:
    """How long to wait for one export: ``seconds`` in all, at most ``at_once`` of them in one call, and only a moment
    for a transaction that is open for longer than ``age`` seconds, because it may stay open for hours. ``reading``: the
    seconds after which no further chunk of a large table is read in one call."""

    seconds: float
    at_once: float = inf
    age: float = inf
    reading: float = inf


# somebody asked for the snapshot and waits; there is nothing else to do
PATIENT = Patience(900)
# a run that holds up others, but has nothing else to do
BRIEF = Patience(60, age=30, reading=3600)
# the same for a run that ends with all its snapshots
IN_FULL = Patience(60, age=30)
# a run that brings other tables up to date between two calls
IN_TURNS = replace(BRIEF, at_once=2, reading=60)
# rounds without an end, each of which looks again
IN_ROUNDS = Patience(inf, at_once=1, reading=10)


class Exporter:
    """Exports one snapshot after another from one server. An export that the server has not finished within
    ``patience`` goes on in its own session, and the next call gets it. Close it to give up.

    ``waits_for``: the oldest of the transactions that it waited for when it last looked.
    """

    def __init__(self, dsn: SecretStr, patience: Patience = PATIENT) -> None:
        self._dsn, self.patience = dsn, patience
        self._pending: _Pending | None = None
        self.waits_for: OpenTransaction | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.close()

    @property
    def is_waiting(self) -> bool:
        """Whether the server still waits for a transaction. Asks it nothing."""
        if self._pending is None:
            return False
        try:
            return not has_answered(self._pending.replication, 0)
        except SourceError:  # whoever asks for the snapshot gets the error
            return False

    @property
    def is_worth_waiting_for(self) -> bool:
        """Whether the export that is waiting may be finished within the patience."""
        return self._pending is not None and self._may_wait(self._pending)

    def begin(self, newest: WindowMarker) -> WindowMarker:
        """Have the server begin an export if none is pending. ``newest``: the last window that is landed now.

        Returns the window that was the newest when the export began. A table continues with the one after it: windows
        that were landed while the server waited may hold changes that the snapshot does not show.
        """
        pending = self._pending
        if pending is None or pending.newest is None:
            self.close()
            pending = self._pending = _Pending(self._dsn, newest)
        return pending.newest or newest

    def look_again(self) -> OpenTransaction | None:
        """The oldest of the transactions that the pending export waits for, as it is now."""
        if self._pending is not None:
            self.waits_for = oldest_transaction(self._pending.control)
        return self.waits_for

    @contextmanager
    def exported(self, progress: Progress = silent) -> Iterator[tuple[ExportedSnapshot, Connection]]:
        """A snapshot that other sessions can import until the context ends: the one that was begun, or a new one.

        The connection returned with it uses the snapshot: look up facts and ranges there. The temporary slot that fixed
        the LSN is dropped before the context is entered, so a long read retains no WAL. The snapshot does hold back
        VACUUM.

        Raises SnapshotWaitsError while the server waits; call it again. Raises PreconditionError for wal_level, no free
        slot, or no REPLICATION attribute.
        """
        pending = self._pending or _Pending(self._dsn, None)
        self._pending = pending
        try:
            self._wait(pending, progress)
        except SnapshotWaitsError:
            raise
        except BaseException:
            self.close()
            raise
        self._pending = None
        try:
            exported = pending.imported()
            self.waits_for = None
            yield exported, pending.control
            with source_errors("the exported snapshot could not be kept to the end"):
                pending.control.execute("COMMIT")
        finally:
            pending.close()

    def _wait(self, pending: _Pending, progress: Progress) -> None:
        until = time.monotonic() + self.patience.at_once
        while not has_answered(pending.replication, _LOOK_EVERY_SECONDS):
            if pending.seconds < min(_MOMENT_SECONDS, self.patience.seconds):
                continue
            self.look_again()
            if time.monotonic() >= until or not self._may_wait(pending):
                raise self._still_waits(pending)
            waits = "" if self.waits_for is None else f"waits for the transaction {self.waits_for}"
            progress(Step("snapshot", waits, round(pending.seconds), None, "s"))

    def _may_wait(self, pending: _Pending) -> bool:
        oldest = self.waits_for
        open_for = oldest.age.total_seconds() if oldest is not None and oldest.age is not None else 0.0
        return pending.seconds < self.patience.seconds and open_for < self.patience.age

    def _still_waits(self, pending: _Pending) -> SnapshotWaitsError:
        if self.waits_for is None:
            return SnapshotWaitsError(
                f"the server has exported no snapshot for {pending.seconds:,.0f} s",
                hint="on a standby it waits for transactions of the primary, and for its next checkpoint",
            )
        return SnapshotWaitsError(
            f"no snapshot can be exported while the transaction {self.waits_for}, has not ended",
            hint=f"end it, if it was forgotten: {self.waits_for.way_to_end}",
        )


@contextmanager
def exported_snapshot(
    dsn: SecretStr, patience: Patience = PATIENT, progress: Progress = silent
) -> Iterator[tuple[ExportedSnapshot, Connection]]:
    """``Exporter.exported``, once."""
    with Exporter(dsn, patience) as exporter, exporter.exported(progress) as snapshot:
        yield snapshot


class _Pending:
    """An export that the server has begun, and the sessions that it needs. ``newest``: see ``Exporter.begin``; None if
    the snapshot is for no table of the lake."""

    def __init__(self, dsn: SecretStr, newest: WindowMarker | None) -> None:
        self.newest = newest
        self._sessions = ExitStack()
        try:
            self.control = self._sessions.enter_context(connected(dsn))
            self._walsender = self._sessions.enter_context(ExitStack())
            self.replication = self._walsender.enter_context(replication_connection(dsn))
            execute(self.replication, f"SELECT pg_catalog.set_config('lock_timeout', '{_LOCK_TIMEOUT}', false)")
            # the syntax that every version since 10 accepts
            slot = f"pgcdc_{secrets.token_hex(8)}"
            send(self.replication, f"CREATE_REPLICATION_SLOT {slot} TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT")
        except BaseException:
            self._sessions.close()
            raise
        self._begun = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._begun

    def imported(self) -> ExportedSnapshot:
        """The snapshot that the server has exported, imported by ``control``, which exports it again: the walsender is
        not needed any more."""
        snapshot_name, lsn = self._answer()
        with source_errors("the snapshot could not be imported"):
            self.control.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            self.control.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot_name)))
            exported = self.control.execute("SELECT pg_catalog.pg_export_snapshot()").fetchall()[0][0]
        self._walsender.close()
        return ExportedSnapshot(exported, lsn)

    def close(self) -> None:
        """A walsender that waits for a lock does not notice that its client is gone, so it is told to stop."""
        with self._sessions:
            try:
                if self.replication.status == pq.ConnStatus.OK and not has_answered(self.replication, 0):
                    self.control.execute("SELECT pg_catalog.pg_cancel_backend(%s)", [self.replication.backend_pid])
            except (SourceError, psycopg.Error) as error:
                _log.warning("an export could not be cancelled; it ends with the transaction it waits for: %s", error)

    def _answer(self) -> tuple[str, Lsn]:
        result = sent_answer(self.replication)
        if result.status != pq.ExecStatus.TUPLES_OK:
            raise _refused(result, self.control)
        consistent_point, snapshot_name = result.get_value(0, 1), result.get_value(0, 2)
        if consistent_point is None or snapshot_name is None:
            raise SlotError("the server exported no snapshot", hint="run it again")
        return snapshot_name.decode(), Lsn.parse(consistent_point.decode())


def _refused(result: pq.abc.PGresult, control: Connection) -> SourceError:
    reason = refusal(result)
    sqlstate = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
    if is_lost(sqlstate, reason):
        return lost_connection("no snapshot can be exported", reason)
    if sqlstate == "55P03":  # lock_not_available: lock_timeout expired
        return SnapshotWaitsError(f"the server has waited for an open transaction, at most {_LOCK_TIMEOUT}: {reason}")
    hint = "`postgres-cdc doctor` lists what is needed"
    if "slots are in use" in reason:
        hint = provider_of(control).or_raise("drop a slot that nobody reads", "max_replication_slots")
    return PreconditionError(f"no snapshot can be exported: {reason}", hint=hint)
