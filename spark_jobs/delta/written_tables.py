"""The tables that this process has written, or has had written by Spark, kept open for its next write.

``deltalake`` opens a table by reading each commit since the last checkpoint twice, and the checkpoint in several parts.
On an object store these are most of the requests of a small write. A table that is kept open reads only the commits
made since, and none if there are none. It is used again only if the table still has the commit that this process made:
that commit determines all before it. Otherwise, as after an error, the table is opened anew.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count, takewhile
from typing import ClassVar
from uuid import uuid4

import deltalake
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.transaction import AddAction, RemoveAction

from spark_jobs.delta.append import commit_files, is_clean_up_due
from spark_jobs.delta.checkpoints import Checkpoints, write_checkpoint_if_due
from spark_jobs.delta.commit import COMMIT_ID, KnownCommit, Transaction, time_now
from spark_jobs.delta.files import REACHABLE
from spark_jobs.delta.own_commit import add_action, commit_info, remove_action, write_commit
from spark_jobs.delta.table import open_table, overtaken, table_errors
from spark_jobs.delta.transaction_log import TransactionLog, note_version
from spark_jobs.storage import Location, Recent


@dataclass(frozen=True)
class TableToWrite:
    """``table`` is open at the version of ``log``. ``is_kept``: this process has written it before."""

    path: Location
    table: DeltaTable
    log: TransactionLog
    is_kept: bool = False

    @cached_property
    def files(self) -> pa.Table:
        """The files of that version with their sizes and statistics. Ask before a commit through ``table``."""
        return pa.table(self.table.get_add_actions(flatten=True))


@dataclass(frozen=True)
class _Written:
    """This process, or Spark for it, has made the ``commit``. ``table`` is open at its version, or at an earlier one;
    ``files``: how many it has there."""

    table: DeltaTable
    commit: KnownCommit
    files: int

    def in_log(self, log: TransactionLog) -> TransactionLog | None:
        """``log`` with that commit already read; None if the table does not have it any more."""
        commit = log.commit(self.commit.version) if self.commit.version <= log.version else None
        if commit is None or commit.known != self.commit:
            return None
        return replace(log, read=commit)


class WrittenTables(Recent[_Written]):
    most: ClassVar[int] = 1_000
    # an open table holds the list of its files: some ten megabytes for ten thousand of them
    most_files: ClassVar[int] = 50_000

    def is_too_much(self, values: OrderedDict[str, _Written]) -> bool:
        return super().is_too_much(values) or sum(each.files for each in values.values()) > self.most_files


def open_to_write(
    path: Location, what: str, *, hint: str = REACHABLE, newest: int | None = None
) -> TableToWrite | None:
    """The newest version of the table at ``path``; None if there is no table. Raises LakeError, which calls the table
    ``what``.

    Nobody else in this process has the same handle, until ``keep_written`` gives it back. ``newest``: the version that
    was the newest a moment ago, if the caller has just looked; then it may be that one.
    """
    kept = path.storage.memory(WrittenTables).take(path)
    if kept is not None:
        with table_errors(f"{what} cannot be read", hint=hint):
            new_log = TransactionLog.open(path) if newest is None else TransactionLog.of_version(path, newest)
            if new_log is not None and (log := kept.in_log(new_log)):
                if log.version > kept.table.version():
                    kept.table.update_incremental()
                version = int(kept.table.version())
                write_checkpoint_if_due(path, kept.table, version, at_once=False)
                return TableToWrite(path, kept.table, log.at(version), is_kept=True)
    table = open_table(path, what, hint=hint)
    if table is None:
        return None
    with table_errors(f"{what} cannot be read", hint=hint):
        return TableToWrite(path, table, TransactionLog.of_version(path, int(table.version())))


def commit_properties(
    transaction: Transaction, *, commit_id: str | None = None, retries: int | None = None, **metadata: str
) -> CommitProperties:
    """Those of a commit after which the table can be kept open. ``commit_id``: by default a new one.

    The transaction says when it was made. ``deltalake`` leaves that out, and then Spark does not see the transaction in
    a table with ``delta.setTransactionRetentionDuration``: it would make a commit of the same number again.
    """
    return CommitProperties(
        custom_metadata={**metadata, COMMIT_ID: commit_id or uuid4().hex},
        app_transactions=[deltalake.Transaction(transaction.app_id, transaction.version, time_now())],
        max_commit_retries=retries,
    )


def commit_next(
    opened: TableToWrite,
    files: Sequence[AddAction | RemoveAction],
    commit: CommitProperties,
    whole: Schema | None = None,
) -> None:
    """Commit data files that are written already as the version after that at which the table is open, and give the
    table back. The files to remove are among them, none with a deletion vector; or all others are, as the table is
    replaced as a ``whole`` and gets this schema. ``commit``: without retries.

    Of 2.6 ms of CPU time, ``deltalake`` spends 2 on reading what this process knows. So it makes only the commits after
    which it cleans up the log, those that the table may refuse, and those that remove files with deletion vectors.
    Raises LakeError, OvertakenError if there is such a version, and what ``deltalake`` raises.
    """
    appends_only = opened.table.metadata().configuration.get("delta.appendOnly") == "true"
    if whole is not None or appends_only or is_clean_up_due(commit):
        commit_files(opened.table, files, commit, whole)
        keep_written(opened, commit)
        return
    transactions = (
        {"txn": {"appId": each.app_id, "version": each.version, "lastUpdated": each.last_updated}}
        for each in commit.app_transactions or ()
    )
    actions = (remove_action(file) if isinstance(file, RemoveAction) else add_action(file) for file in files)
    parameters = {"mode": "Append", "partitionBy": "[]"}
    information = commit_info("WRITE", parameters, **(commit.custom_metadata or {}))
    if not write_commit(opened.path, opened.log.version + 1, (information, *transactions, *actions)):
        raise overtaken(opened.path)
    keep_written(opened, commit)


def id_of(commit: CommitProperties) -> str:
    """The id in ``commit_properties``."""
    return str((commit.custom_metadata or {})[COMMIT_ID])


def is_made(opened: TableToWrite, commit: CommitProperties) -> bool:
    """Whether ``commit``, that was to be made to a table, is among those made since it was opened. Raises OSError and
    ValueError."""
    commit_id = id_of(commit)
    commits = takewhile(lambda each: each is not None, map(opened.log.commit, count(opened.log.version + 1)))
    return any(each is not None and each.id == commit_id for each in commits)


def keep_written(opened: TableToWrite, commit: CommitProperties) -> None:
    """Give back a table that ``commit`` was just made to. The caller must not use it any more."""
    path, table = opened.path, opened.table
    # ``append`` has left the table where it was, and the commit is most likely the next one
    version = max(int(table.version()), opened.log.version + 1)
    note_version(path, version)
    path.storage.memory(Checkpoints).note_commit()
    if not opened.is_kept:  # a process that has written a table once may never do so again
        write_checkpoint_if_due(path, table, version, at_once=True)
    keep_at(opened, KnownCommit(version, id_of(commit)))


def keep_at(opened: TableToWrite, commit: KnownCommit) -> None:
    """Give back a table to which ``commit`` was made since it was opened, by this process or by Spark for it."""
    written = _Written(opened.table, commit, len(opened.table.file_uris()))
    opened.path.storage.memory(WrittenTables).keep(opened.path, written)
