"""A Delta table's state, read from its transaction log without Spark.

Each of our commits carries a transaction identifier (https://github.com/delta-io/delta/blob/master/PROTOCOL.md,
"Transaction Identifiers"): ``txnAppId`` is ``pgcdc:{system_identifier}:{slot}:table``, ``txnVersion`` counts our
commits to this table. A writer that has read ``commits`` commits as number ``commits + 1``, and Delta skips a number
that the table already has. So of all writers that have read the same state, exactly one commits. The state after a
commit is recorded in the commit's ``userMetadata``.

The log is not read with the ``deltalake`` library: it refuses tables with type widening, and version 1.6 opens the
wrong path if the given one has a percent sign.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

from pyarrow import fs

from spark_jobs.change_log.window_marker import SlotIdentity
from spark_jobs.configuration import Lake
from spark_jobs.delta.commit import Commit, KnownCommit, Transaction
from spark_jobs.delta.files import ask_tables, lake_errors, lake_filesystem
from spark_jobs.delta.table import log_errors, table_errors
from spark_jobs.delta.transaction_log import TransactionLog, remove_checksum
from spark_jobs.errors import LakeError
from spark_jobs.lake.cuts import Cut, TableCut, latest_cut
from spark_jobs.lake.generation import NO_GENERATION, Generation
from spark_jobs.lake.unrepresentable import ALL_FITTED, RecordsOf, Unrepresentable
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.options.table_mode import Mode
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.differing_columns import SAME_COLUMNS, DifferingColumns
from spark_jobs.storage import Location

_log = logging.getLogger(__name__)

TXN_PREFIX = "pgcdc:"
# of what our commits record; raised when an earlier version would misread them
METADATA_FORMAT = 1


@dataclass(frozen=True)
class SnapshotCause:
    """Why an automatic snapshot was taken. It began ``at``, UTC, and took ``seconds``, which its own commit cannot
    know: that is None there, and the states that are read of it have it from the commit's time. ``spent``: the seconds
    that earlier ones had used up at that time, see ``snapshot/snapshot_budget.py``."""

    reason: str
    at: datetime
    spent: float = 0.0
    seconds: float | None = None


# how a net change was written. append: rows were added; overwrite: all rows were replaced after a TRUNCATE; rewrite: so
# many had changed that reading and writing the whole table cost less than a MERGE
Strategy = Literal["append", "overwrite", "merge", "rewrite"]


@dataclass(frozen=True)
class PartitionsRead:
    """Some partitions of a table were read again, and nothing else of it: why, how many ``rows`` they held, at which
    LSN."""

    reason: str
    rows: int
    lsn: str


@dataclass(frozen=True)
class TableState:
    """``ordinal``: the table shows the source at the end of that window. ``version``: the newest Delta version.

    ``generation`` is ``NO_GENERATION`` if the state is lost. ``relid`` is the source table's OID. ``commits`` is the
    number of our commits, the version of the table's transaction identifier; ``last_commit`` is the last of them, None
    if it is not known. ``cause``: why the generation's snapshot was taken, None if a user asked for it.
    ``partitions``: the partitions last read again since that snapshot. ``strategy``: how our last commit was written;
    None if it was a snapshot, or is not known. ``differing``: the columns in which it differs from the source on
    purpose. ``unrepresentable``: the values that it holds, or held, otherwise than the source.
    """

    name: QualifiedName
    generation: Generation
    snapshot_lsn: Lsn = field(init=False)
    ordinal: int
    version: int
    relid: int | None = None
    commits: int = 0
    cause: SnapshotCause | None = None
    partitions: PartitionsRead | None = None
    strategy: Strategy | None = None
    last_commit: KnownCommit | None = None
    differing: DifferingColumns = SAME_COLUMNS
    unrepresentable: Unrepresentable = ALL_FITTED

    def __post_init__(self) -> None:
        object.__setattr__(self, "snapshot_lsn", self.generation.snapshot_lsn)  # a field of its own in reports

    def has_lost(self, commits: int, commit: KnownCommit | None) -> bool:
        """Whether the table does not have our commit of number ``commits``, which it had as ``commit``: another writer
        has replaced it, or an older copy of the table was put back."""
        if commits != self.commits or commit is None or self.last_commit is None:
            return commits > self.commits
        return commit != self.last_commit

    @property
    def is_lost(self) -> bool:
        """Whether Delta's log no longer says how far the table is: clean-up has removed that commit, or a version was
        restored by its time. Then it needs a new snapshot."""
        return self.generation == NO_GENERATION

    @property
    def mode(self) -> Mode:
        return self.generation.mode

    @property
    def relation(self) -> QualifiedName:
        """The source table's name. A state that is lost does not know another one than its own."""
        return self.generation.shows or self.name


def note_lost_commit(path: Location, number: int, version: int) -> None:
    """Say that the table at ``path`` has lost our commit of this number, and remove what Spark has written beside it.
    ``version``: that of the commit. Raises LakeError.

    Delta's log on S3 allows that: Spark looks whether a version is there, and then writes it without a condition, so of
    two writers the later one wins, and the other believes that it has committed. What was lost is applied again, as the
    table's own log says how far the table is now. An older copy of a table that was put back shows itself in the same
    way.
    """
    _log.warning(
        "%s has lost commit %d of this pipeline (Delta version %d): another writer has replaced it, or an older copy or"
        " version of the table was restored; what it held is applied again",
        path,
        number,
        version,
    )
    with lake_errors(f"the checksum of a lost commit to {path} cannot be removed"):
        remove_checksum(path, version)


def noted_if_lost(path: Location, now: TableState, known: TableState | TableCut) -> bool:
    """Whether the table at ``path``, which is at ``now``, has lost the last commit that was ``known`` of it; then that
    is said. Raises LakeError."""
    is_lost = now.has_lost(known.commits, known.last_commit)
    if is_lost:
        note_lost_commit(path, known.commits, known.last_commit.version if known.last_commit else known.version)
    return is_lost


def stream_id(system_identifier: int, slot: str) -> str:
    """The prefix of the transaction identifiers of one slot's tables."""
    return f"{TXN_PREFIX}{system_identifier}:{slot}:"


def txn_app_id(system_identifier: int, slot: str) -> str:
    """The ``txnAppId`` of our commits to any table of this slot."""
    return f"{stream_id(system_identifier, slot)}table"


def records_of(lake: Lake, state: TableState, identity: SlotIdentity) -> RecordsOf:
    """The records of the values that the table's commits stored otherwise than the source had them."""
    return RecordsOf(lake, state.name, stream_id(*identity.stream), state.generation)


def table_state(lake: Lake, name: QualifiedName, identity: SlotIdentity) -> TableState | None:
    """The state of one table, None if there is no table of this slot yet: then it needs its first snapshot.

    Raises LakeError for a Delta table that no pipeline of ours has written, and for a log that cannot be read.
    """
    path, app_id, ours = lake.table(name), txn_app_id(*identity.stream), False
    with log_errors(str(name), path):
        log = TransactionLog.open(path)
        if log is None:
            return None
        for txn, commit in _transactions(log):
            ours = ours or txn.app_id.startswith(TXN_PREFIX)
            if txn.app_id == app_id:
                restored = None if commit is None else _restored_since(log, commit)
                if restored is None:
                    return _state(lake, name, log.version, txn.version, commit)
                return _restored_state(name, log, txn, restored)
        if not ours and (known := _forgotten_state(lake, name, log)):
            return known
    if not ours:
        raise LakeError(
            f"{name}: {path} holds a Delta table that this pipeline did not write",
            hint="move it away, or choose another lake.path",
        )
    return None


def table_states(
    lake: Lake, names: Sequence[QualifiedName], identity: SlotIdentity
) -> dict[QualifiedName, TableState | LakeError]:
    """The states of those tables that are in the lake. A table that cannot be read must not be replaced without being
    asked for: its LakeError stops that table alone."""
    states = ask_tables(lambda name: table_state(lake, name, identity), names)
    return {name: state for name, state in states.items() if state is not None}


def is_written_by(path: Location, prefix: str) -> bool:
    """Whether the Delta table has a transaction whose identifier begins with ``prefix``. Raises LakeError."""
    with table_errors(f"{path} cannot be read"):
        log = TransactionLog.open(path)
        return log is not None and any(txn.app_id.startswith(prefix) for txn, _ in _transactions(log))


def has_delta_table(lake: Lake, name: QualifiedName) -> bool:
    """Whether there is a Delta table at the table's path, ours or not. Cheaper than ``table_state``."""
    filesystem, path = lake_filesystem(lake.table(name) / "_delta_log")
    return bool(filesystem.get_file_info(path).type == fs.FileType.Directory)


def _transactions(log: TransactionLog) -> Iterator[tuple[Transaction, Commit | None]]:
    """Transaction identifiers, newest first, each with its commit, None if log clean-up has removed that. Commits
    without an identifier (OPTIMIZE) are skipped."""
    for commit in log.commits():  # also commits before the checkpoint, which holds no user metadata
        for txn in commit.transactions:
            yield txn, commit
    for txn in log.checkpoint_transactions():
        yield txn, None


def _restored_since(log: TransactionLog, commit: Commit) -> Commit | None:
    """The last RESTORE since ``commit``. It leaves the newest transaction identifiers as they are."""
    since = map(log.commit, range(log.version, commit.version, -1))
    return next((other for other in since if other is not None and other.operation == "RESTORE"), None)


def _restored_state(name: QualifiedName, log: TransactionLog, newest: Transaction, restore: Commit) -> TableState:
    """The state that a RESTORE brought back; what was written since is applied again, by commits with further numbers.
    Lost if Delta's log does not tell which version that was, or no longer has it."""
    version = restore.restored_version
    earlier = () if version is None else _transactions(log.at(version))
    commit = next((commit for txn, commit in earlier if txn.app_id == newest.app_id), None)
    if commit is None:
        return _lost(name, log.version, newest.version)
    if (before := _restored_since(log.at(version or 0), commit)) is not None:
        return _restored_state(name, log, newest, before)
    return state_written(name, log.version, newest.version, commit.user_metadata, commit.known)


def _state(lake: Lake, name: QualifiedName, version: int, commits: int, commit: Commit | None) -> TableState:
    if commit is not None:
        written = commit.user_metadata
        state = state_written(name, version, commits, written, commit.known)
        is_snapshot = written["lo"] == written["hi"] and not written.get("columns")
        if is_snapshot and state.cause is not None and state.cause.seconds is None:
            return replace(state, cause=_with_seconds(state.cause, commit))
        return state
    # our last commit is older than Delta's log retention, but others have committed since: ask the latest cut
    known = _state_in_latest_cut(lake, name)
    if known is None or known.commits != commits:
        return _lost(name, version, commits)
    return replace(known, version=version)


def state_written(
    name: QualifiedName, version: int, commits: int, written: dict[str, Any], commit: KnownCommit
) -> TableState:
    """The state that our ``commit``, number ``commits``, recorded in ``written``. Raises KeyError and ValueError;
    LakeError if a later version has written it in a format that this one does not know."""
    if written.get("format", METADATA_FORMAT) > METADATA_FORMAT:
        raise LakeError(
            f"{name}: a later version of postgres-cdc has written its Delta table, in format {written['format']}",
            hint="use the version that has written to this lake last; nothing was changed",
        )
    return TableState(
        name,
        Generation.parse(written["generation"]),
        written["last_window"],
        version,
        written["relid"],
        commits,
        _cause(written.get("cause")),
        None if (read := written.get("partitions_read")) is None else PartitionsRead(**read),
        written.get("strategy"),
        commit,
        DifferingColumns.of(written.get("differing")),
        Unrepresentable.of(written.get("unrepresentable")),
    )


def _forgotten_state(lake: Lake, name: QualifiedName, log: TransactionLog) -> TableState | None:
    """The state of a table whose checkpoint lacks our identifiers, because somebody has limited their retention
    (``delta.setTransactionRetentionDuration``): the one in the latest cut, or a lost one if commits since may be
    ours."""
    known = _state_in_latest_cut(lake, name)
    if known is None:
        return None
    oldest = min((commit.version for commit in log.commits()), default=log.version + 1)
    if oldest > known.version + 1:
        return _lost(name, log.version, known.commits)
    return replace(known, version=log.version)


def _state_in_latest_cut(lake: Lake, name: QualifiedName) -> TableState | None:
    cut = latest_cut(lake)
    known = cut.table(name) if cut else None
    return state_in_cut(cut, known) if cut and known else None


def state_in_cut(cut: Cut, known: TableCut) -> TableState:
    """The state in the cut, without the cause of the snapshot, which only the table's own log has."""
    return TableState(
        known.name,
        Generation.parse(known.generation),
        cut.ordinal,
        known.version,
        known.relid,
        known.commits,
        last_commit=known.last_commit,
        differing=known.differing,
        unrepresentable=known.unrepresentable,
    )


def entry_in_cut(state: TableState, relid: int) -> TableCut:
    """The entry of a table that is at ``state`` in a cut."""
    differing = state.differing, state.unrepresentable
    return TableCut(
        state.name, relid, str(state.generation), state.version, state.commits, state.last_commit, *differing
    )


def _lost(name: QualifiedName, version: int, commits: int) -> TableState:
    return TableState(name, NO_GENERATION, -1, version, None, commits)


def _cause(fields: dict[str, Any] | None) -> SnapshotCause | None:
    if fields is None:
        return None
    at = datetime.fromisoformat(fields["at"])
    return SnapshotCause(fields["reason"], at, fields.get("spent", 0.0), fields.get("seconds"))


def _with_seconds(cause: SnapshotCause, commit: Commit) -> SnapshotCause:
    """The cause that the snapshot's own ``commit`` has, with the time that the snapshot took."""
    ended = datetime.fromtimestamp(commit.timestamp / 1_000_000, UTC)
    return replace(cause, seconds=max(0.0, (ended - cause.at).total_seconds()))
