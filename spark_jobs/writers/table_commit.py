"""One commit to one Delta table: who wrote it and what it covers.

Its transaction identifier makes writes happen exactly once, see ``table_state``. It carries the commit number, one more
than the table had when its state was read; Delta compares it with the table's newest number within the transaction.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

from deltalake import CommitProperties, Schema
from deltalake.transaction import AddAction

from spark_jobs.change_log.change_counts import NO_CHANGES, ChangeCounts
from spark_jobs.change_log.window_marker import SlotIdentity
from spark_jobs.configuration import Lake
from spark_jobs.delta.checkpoints import Checkpoints
from spark_jobs.delta.commit import USER_COMMIT_ID, KnownCommit, Transaction
from spark_jobs.delta.table import commit_errors, overtaken, table_errors
from spark_jobs.delta.transaction_log import TransactionLog, last_checkpoint, note_version, remove_checksum_of_another
from spark_jobs.delta.written_tables import TableToWrite, commit_next, commit_properties, is_made
from spark_jobs.errors import CdcError
from spark_jobs.lake.generation import Generation
from spark_jobs.lake.table_state import (
    METADATA_FORMAT,
    PartitionsRead,
    SnapshotCause,
    Strategy,
    TableState,
    note_lost_commit,
    state_written,
    stream_id,
    txn_app_id,
)
from spark_jobs.lake.unrepresentable import ALL_FITTED, RecordsOf, Unrepresentable
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.options.table_mode import Mode
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.differing_columns import SAME_COLUMNS, DifferingColumns
from spark_jobs.schema.misfits import Misfits
from spark_jobs.spark.errors import is_concurrent_commit, is_file_gone, is_overtaken
from spark_jobs.spark.session import isolated_session
from spark_jobs.spark.session_conf import FEW_LOG_PARTITIONS, LOG_PARTITIONS
from spark_jobs.storage import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

_LAST_COMMIT = "spark.databricks.delta.lastCommitVersionInSession"
_FILES_OF_PARTITION = 10_000


@dataclass(frozen=True)
class ModeOrigin:
    """Where a table in another mode was rebuilt from: the mode ``before``, the Delta version ``base_version`` that it
    was built on, and the LSN from which on it has what its mode keeps."""

    before: Mode
    base_version: int
    known_since: Lsn


@dataclass(frozen=True)
class Provenance:
    """What a commit records about itself: windows ``first`` to ``last`` of the slot, WAL ``[lo, hi)``, changes seen.

    ``system_identifier`` and ``slot`` are those that the log began with, also in its later chapters. In a snapshot's
    commit ``first`` = ``last``, the last window that it covers, and ``lo`` = ``hi`` = the snapshot's LSN. ``commits``
    is this commit's number: one more than the table had. ``cause`` is the cause of the table's snapshot. ``columns``:
    how the table's columns changed since the previous commit. ``mode_changed`` is set in the commit that puts the table
    into another mode; its windows are those that were applied again. ``partitions``: the latest partitions that were
    read again alone, by this commit or an earlier one. ``strategy``: how a net change was written; None for a snapshot.
    ``differing``: the columns in which the table differs from the source on purpose. ``unrepresentable``: the values
    that were stored otherwise than the source had them, those of this commit included.
    ``id`` tells this commit from all others, those of the same number included.
    """

    system_identifier: int
    slot: str
    generation: Generation
    first: int
    last: int
    lo: Lsn
    hi: Lsn
    relid: int
    commits: int
    run_id: str = ""
    changes: ChangeCounts = NO_CHANGES
    cause: SnapshotCause | None = None
    columns: tuple[str, ...] = ()
    mode_changed: ModeOrigin | None = None
    partitions: PartitionsRead | None = None
    strategy: Strategy | None = None
    differing: DifferingColumns = SAME_COLUMNS
    unrepresentable: Unrepresentable = ALL_FITTED
    id: str = field(default_factory=lambda: uuid4().hex)

    @classmethod
    def following(
        cls, state: TableState, identity: SlotIdentity, relid: int, first: int, last: int, lo: Lsn, hi: Lsn, run_id: str
    ) -> Provenance:
        """That of the commit after ``state``, in the same generation, with what each commit repeats of the one
        before."""
        following = cls(*identity.stream, state.generation, first, last, lo, hi, relid, state.commits + 1, run_id)
        return replace(
            following,
            cause=state.cause,
            partitions=state.partitions,
            differing=state.differing,
            unrepresentable=state.unrepresentable,
        )

    @property
    def txn_app_id(self) -> str:
        return txn_app_id(self.system_identifier, self.slot)

    @contextmanager
    def recording(self, lake: Lake, name: QualifiedName, misfits: Misfits) -> Iterator[Provenance]:
        """That of a commit which stores other values in place of these; made within the context. Their records are
        written before it, and added after it."""
        records = RecordsOf(lake, name, stream_id(self.system_identifier, self.slot), self.generation)
        records.add(self.unrepresentable.file)  # unless the process that made that commit was killed, it is
        file = records.written(misfits, self.commits) if misfits else None
        yield replace(self, unrepresentable=self.unrepresentable.and_(misfits, file))
        try:
            records.add(file)
        except CdcError as error:  # the table's commit is made, and the next one tries again
            _log.warning("%s: the records of what did not fit are added later: %s", name, error)

    def state(self, name: QualifiedName, version: int) -> TableState:
        """That of the table ``name`` after this commit, which made ``version``."""
        return state_written(
            name, version, self.commits, json.loads(self.user_metadata()), KnownCommit(version, self.id)
        )

    def user_metadata(self) -> str:
        """The commit's ``userMetadata``: JSON, LSNs as PostgreSQL writes them."""
        return json.dumps(
            {
                "format": METADATA_FORMAT,
                "system_identifier": self.system_identifier,
                "slot": self.slot,
                "generation": str(self.generation),
                "snapshot_lsn": str(self.generation.snapshot_lsn),
                "relid": self.relid,
                "first_window": self.first,
                "last_window": self.last,
                "lo": str(self.lo),
                "hi": str(self.hi),
                "run_id": self.run_id,
                USER_COMMIT_ID: self.id,
                **asdict(self.changes),
                "columns": list(self.columns),
                "cause": None if self.cause is None else {**asdict(self.cause), "at": self.cause.at.isoformat()},
                "strategy": self.strategy,
                "differing": asdict(self.differing),
                "unrepresentable": self.unrepresentable.fields,
                "partitions_read": None if self.partitions is None else asdict(self.partitions),
                **_mode_change(self.mode_changed),
            },
            separators=(",", ":"),
        )


def _mode_change(changed: ModeOrigin | None) -> dict[str, object]:
    if changed is None:
        return {}
    return {"mode_changed": {**asdict(changed), "known_since": str(changed.known_since)}}


def numbered_commit(opened: TableToWrite, provenance: Provenance) -> CommitProperties | None:
    """The commit of ``provenance`` to a table that ``deltalake`` has opened, on that version alone. None if the table
    has forgotten our number (see ``table_state``). Raises OvertakenError if it is not the next one: another writer has
    committed since the table's state was read."""
    with table_errors(f"{opened.path} cannot be read"):  # ``deltalake`` would read all commits once more
        number = opened.log.transaction_version(provenance.txn_app_id)
    if number is None and provenance.commits > 1:
        return None
    if (number or 0) != provenance.commits - 1:
        raise overtaken(opened.path)
    transaction = Transaction(provenance.txn_app_id, provenance.commits)
    return commit_properties(transaction, commit_id=provenance.id, retries=0, userMetadata=provenance.user_metadata())


def commit_numbered(
    opened: TableToWrite, provenance: Provenance, files: Sequence[AddAction] = (), whole: Schema | None = None
) -> int | None:
    """Make that commit, of data files that are written already (``commit_next``). Returns the Delta version; None where
    ``numbered_commit`` does. Raises as that, and LakeError."""
    commit = numbered_commit(opened, provenance)
    if commit is None:
        return None
    with commit_errors(opened.path, is_made=partial(is_made, opened, commit)):
        commit_next(opened, files, commit, whole)
    return opened.log.version + 1


@contextmanager
def committing_session(
    spark: SparkSession,
    path: Location,
    provenance: Provenance,
    *,
    compact: bool = False,
    by_any: bool = False,
    creates: bool = False,
) -> Iterator[SparkSession]:
    """A session whose next Delta commit, to the table at ``path``, carries ``provenance``. Delta skips the write if the
    table already has our commit of that number: then another writer has committed since the table's state was read.
    Delta's error about a conflict with a concurrent commit of ours is raised as OvertakenError; with ``by_any``, about
    a conflict with anybody's commit. ``creates``: the commit creates the table, so a file that is gone was removed as a
    leftover by the writer that committed first (``writers/with_arrow/leftovers.py``).

    ``compact``: small files are compacted in a second commit. Delta's table property is not used for this: in a fresh
    process its first commit always compacts, whatever the number of files.

    MERGE has no option for the transaction identifier, so it is set in the session's configuration: one session per
    commit.
    """
    conf = {
        "spark.databricks.delta.write.txnAppId": provenance.txn_app_id,
        "spark.databricks.delta.write.txnVersion": str(provenance.commits),
        "spark.databricks.delta.commitInfo.userMetadata": provenance.user_metadata(),
        "spark.databricks.delta.autoCompact.enabled": str(compact).lower(),
        **_log_partitions(spark, path),
    }
    with isolated_session(spark, conf) as own:
        # in Connect a cloned session inherits this value, and a skipped write would look like a commit
        own.conf.unset(_LAST_COMMIT)
        try:
            yield own
        except Exception as error:
            if is_overtaken(error) or (by_any and is_concurrent_commit(error)) or (creates and is_file_gone(error)):
                raise overtaken(path) from error
            raise


def _log_partitions(spark: SparkSession, path: Location) -> dict[str, str]:
    """The setting for a table of so many files, unless somebody has set it otherwise for the session."""
    if spark.conf.get(LOG_PARTITIONS, None) not in (None, *FEW_LOG_PARTITIONS):
        return {}
    with table_errors(f"{path} cannot be read"):
        known = last_checkpoint(path)
    files = known.actions if known is not None else 0
    return {LOG_PARTITIONS: str(1 + files // _FILES_OF_PARTITION)}


def committed_version(session: SparkSession, path: Location, provenance: Provenance) -> int:
    """The Delta version that ``session`` committed last. Raises OvertakenError when its write was skipped, and when
    another writer's commit has replaced it since."""
    version = session.conf.get(_LAST_COMMIT, None)
    if not version:
        raise overtaken(path)
    _check_commit(path, int(version), provenance)
    return int(version)


def _check_commit(path: Location, newest: int, provenance: Provenance) -> None:
    """``newest``: the version of the commit, or of a compaction that followed it."""
    with table_errors(f"{path} cannot be read"):
        for commit in TransactionLog.of_version(path, newest).commits():
            if any(txn.app_id == provenance.txn_app_id for txn in commit.transactions):
                if commit.id == provenance.id:
                    remove_checksum_of_another(path, commit)
                    note_version(path, newest)
                    path.storage.memory(Checkpoints).note_commit_of_spark(path, newest)
                    return
                break
    note_lost_commit(path, provenance.commits, newest)
    raise overtaken(path)


def commit_without_rows(spark: SparkSession, path: Location, provenance: Provenance) -> int:
    """A commit that only records its provenance. Returns the Delta version. Raises OvertakenError."""
    with committing_session(spark, path, provenance) as own:
        own.read.format("delta").load(path).where("false").write.format("delta").mode("append").save(path)
        return committed_version(own, path, provenance)
