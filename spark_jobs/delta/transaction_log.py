"""A Delta table's newest commits, read from their own files, at a cost that does not grow with the table's history.

For a table of fifty thousand commits ``deltalake`` lists all commit files and reads a checkpoint of all added files.
Finding the newest commit is cheaper: the version that this process saw last, or else the one in ``_last_checkpoint``,
is close to it, and versions have no gaps. Both are only hints: without that version's file, the folder is listed.

A sync reads the newest commits of the same tables again and again. So small ones are remembered, and read again only if
the storage says that the file is another one now: an object store names a file's contents by an ``ETag``.
https://github.com/delta-io/delta/blob/master/PROTOCOL.md#delta-log-entries
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from spark_jobs.delta.commit import Commit, KnownCommit, Transaction, commit_name, commit_of
from spark_jobs.delta.files import lake_filesystem
from spark_jobs.delta.whole_files import content_of, read_file
from spark_jobs.storage import Location, Recent

# the files of a log: a commit, and a checkpoint, which may be in several parts
COMMIT = re.compile(r"(\d{20})\.json")
CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\..+)?\.parquet")
_MOST_BYTES = 64 << 10


@dataclass(frozen=True)
class _KnownFile:
    """A commit that was read from a file with this ``etag``."""

    etag: str
    commit: Commit


class SmallCommits(Recent[_KnownFile]):
    most = 256  # together at most 16 MiB


@dataclass(frozen=True)
class LogFolder:
    """The folder ``_delta_log`` of a ``table``: its ``path`` in the ``filesystem``."""

    filesystem: fs.FileSystem
    path: str
    table: Location

    @classmethod
    def of(cls, table: Location) -> LogFolder:
        return cls(*lake_filesystem(table / "_delta_log"), table)

    def file(self, name: str) -> str:
        return f"{self.path}/{name}"

    def commit(self, version: int) -> Commit | None:
        """None if there is no such commit. Raises OSError; ValueError if it is damaged."""
        name, remembered = commit_name(version), self.table.storage.memory(SmallCommits)
        path = self.file(name)
        known = remembered.take(path)
        try:
            content, etag = read_file(self.table / "_delta_log", name, unless=known.etag if known else None)
        except FileNotFoundError:
            return None
        if content is not None:
            commit = commit_of(path, version, content.to_pybytes())
            if etag is None or content.size > _MOST_BYTES:
                return commit
            known = _KnownFile(etag, commit)
        assert known is not None
        remembered.keep(path, known)
        return known.commit

    def has_commit(self, version: int) -> bool:
        # of a file that is missing, get_file_info would also ask an object store whether it is a folder
        try:
            self.filesystem.open_input_stream(self.file(commit_name(version))).close()
        except FileNotFoundError:
            return False
        return True

    def has_version(self, version: int) -> bool:
        """Whether the version begins with a commit or a checkpoint that is there. A commit may have left the log that a
        checkpoint of the same version covers."""
        checkpoints = (CHECKPOINT.fullmatch(file.base_name) for file in self.files())
        return self.has_commit(version) or any(match and int(match[1]) == version for match in checkpoints)

    def files(self) -> list[fs.FileInfo]:
        """What the folder holds; nothing if it does not exist."""
        infos: list[fs.FileInfo] = self.filesystem.get_file_info(fs.FileSelector(self.path, allow_not_found=True))
        return infos


class NewestVersions(dict[str, int]):
    """By table, the newest version that this process has seen."""


@dataclass(frozen=True)
class TransactionLog:
    """The folder ``_delta_log`` of a table at ``version``. The methods raise OSError and ValueError if it cannot be
    read."""

    folder: LogFolder
    version: int
    read: Commit | None = field(default=None, repr=False)  # a commit that was read already, to find the version

    @classmethod
    def of_version(cls, table: Location, version: int) -> TransactionLog:
        """The log at a version that exists."""
        return cls(LogFolder.of(table), version)

    @classmethod
    def open(cls, table: Location) -> TransactionLog | None:
        """The log at the newest version; None if there is no Delta table."""
        folder = LogFolder.of(table)
        near = _commit_near_end(folder, table.storage.memory(NewestVersions).get(table))
        version = _newest_listed(folder) if near is None else _newest_from(folder, near.version)
        if version is None:
            return None
        note_version(table, version)
        return cls(folder, version, near)

    def at(self, version: int) -> TransactionLog:
        """The same log at another version, which must exist."""
        return replace(self, version=version)

    def commits(self) -> Iterator[Commit]:
        """The commits, newest first, up to the first one that log clean-up has removed."""
        for version in range(self.version, -1, -1):
            commit = self.commit(version)
            if commit is None:
                return
            yield commit

    def commit(self, version: int) -> Commit | None:
        """One commit; None if the table does not have it, or no longer."""
        if self.read is not None and self.read.version == version:
            return self.read
        return self.folder.commit(version)

    def transaction_version(self, app_id: str) -> int | None:
        """The version of the last transaction of this application; None without any."""
        for commit in self.commits():
            for txn in commit.transactions:
                if txn.app_id == app_id:
                    return txn.version
            if commit.version == 0:
                return None
        return next((txn.version for txn in self.checkpoint_transactions() if txn.app_id == app_id), None)

    def checkpoint_transactions(self) -> tuple[Transaction, ...]:
        """The transaction identifiers in the newest checkpoint, the one updated last first."""
        parts = [(int(m[1]), file.path) for file in self.folder.files() if (m := CHECKPOINT.fullmatch(file.base_name))]
        newest = max((version for version, _ in parts if version <= self.version), default=-1)
        transactions: list[dict[str, Any]] = []
        for path in (path for version, path in parts if version == newest):
            try:
                rows = pq.read_table(path, filesystem=self.folder.filesystem, columns=["txn"]).column("txn").to_pylist()
            except pa.ArrowException as error:
                raise ValueError(f"{path} is damaged") from error
            transactions += [row for row in rows if row and row["appId"]]
        transactions.sort(key=lambda row: row.get("lastUpdated") or 0, reverse=True)
        return tuple(Transaction(row["appId"], row["version"]) for row in transactions)


def note_version(table: Location, version: int) -> None:
    """Note that this process has seen or committed ``version``: the next look for the newest one begins there."""
    table.storage.memory(NewestVersions)[table] = version


def is_as_known(table: Location, version: int, known: KnownCommit) -> bool:
    """Whether ``version`` is the newest one of the Delta table, and the commit ``known``, of that version or an earlier
    one, is still there. False, too, if log clean-up has removed one of them. Raises OSError and ValueError."""
    folder = LogFolder.of(table)
    if folder.has_commit(version + 1):
        return False
    if known.version != version and not folder.has_commit(version):
        return False
    commit = folder.commit(known.version)
    return commit is not None and commit.id == known.id


def remove_checksum(table: Location, version: int) -> None:
    """Remove what Spark has written beside the commit ``version``, which another writer's has replaced since. The
    checksum describes the table after the lost commit, so Spark refuses the table (``DELTA_STATE_RECOVER_ERROR``);
    without one it reads the table. Raises OSError.

    https://github.com/delta-io/delta/blob/master/PROTOCOL.md#version-checksum-file
    """
    folder = LogFolder.of(table)
    with suppress(FileNotFoundError):
        folder.filesystem.delete_file(folder.file(f"{version:020}.crc"))


def remove_checksum_of_another(table: Location, commit: Commit) -> None:
    """The same, where ``commit`` has replaced another writer's: Spark never replaces a checksum. Raises OSError."""
    ours = {information.get("txnId") for information in commit.actions("commitInfo")}
    with suppress(FileNotFoundError, ValueError):  # Spark does not mind a damaged one
        checksum = json.loads(content_of(table / "_delta_log", f"{commit.version:020}.crc").to_pybytes())
        if checksum.get("txnId") not in ours:
            remove_checksum(table, commit.version)


@dataclass(frozen=True)
class LastCheckpoint:
    """``actions``: how many it has: one for each data file, and a few more."""

    version: int
    actions: int


def last_checkpoint(table: Location) -> LastCheckpoint | None:
    """The table's last checkpoint, by a file that is only a hint; None if it is missing or damaged.

    https://github.com/delta-io/delta/blob/master/PROTOCOL.md#last-checkpoint-file
    """
    try:
        hint = json.loads(content_of(table / "_delta_log", "_last_checkpoint").to_pybytes())
        return LastCheckpoint(int(hint["version"]), int(hint.get("size", 0)))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _commit_near_end(folder: LogFolder, version: int | None) -> Commit | None:
    """The commit of ``version``, seen last, or else of that in ``_last_checkpoint``; None if neither is there."""
    if version is not None and (commit := folder.commit(version)):
        return commit
    known = last_checkpoint(folder.table)
    return None if known is None else folder.commit(known.version)


def _newest_from(folder: LogFolder, known: int) -> int:
    """The newest version, given one that exists."""
    step = 1
    while folder.has_commit(known + step):
        step *= 2
    low, high = known + step // 2, known + step  # low exists, high does not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if folder.has_commit(middle) else (low, middle)
    return low


def _newest_listed(folder: LogFolder) -> int | None:
    names = [file.base_name for file in folder.files()]
    matches = (COMMIT.fullmatch(name) or CHECKPOINT.fullmatch(name) for name in names)
    return max((int(match[1]) for match in matches if match), default=None)
