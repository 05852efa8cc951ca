"""One commit of a Delta table, as its file in ``_delta_log`` describes it.

A version's number does not say whose commit it is: Spark writes to S3 without a condition, so of two writers of one
version the later replaces the other's commit (``S3SingleDriverLogStore``), and both believe that theirs stands. What
says it is the commit's ``id``.

A sync reads the newest commits of the same tables again and again. So small ones are remembered, and read again only if
the storage says that the file is another one now: an object store names a file's contents by an ``ETag``.
https://github.com/delta-io/delta/blob/master/PROTOCOL.md#delta-log-entries
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from pyarrow import fs

from spark_jobs.delta.files import lake_filesystem
from spark_jobs.delta.whole_files import read_file
from spark_jobs.storage import Location, Recent

# the files of a log: a commit, and a checkpoint, which may be in several parts
COMMIT = re.compile(r"(\d{20})\.json")
CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\..+)?\.parquet")
_MOST_BYTES = 64 << 10
_MILLISECONDS = 1000
# where a commit of ours holds its id: among the properties that ``deltalake`` writes, and in ``userMetadata``, the only
# place that Spark offers
COMMIT_ID = "commitId"
USER_COMMIT_ID = "commit_id"


def time_now() -> int:
    """The time as Delta's log and files have it: in milliseconds since 1970."""
    return int(time.time() * _MILLISECONDS)


@dataclass(frozen=True)
class Transaction:
    """A transaction identifier: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#transaction-identifiers"""

    app_id: str
    version: int


@dataclass(frozen=True)
class KnownCommit:
    """A commit as it was when it was made or read: the table's log should have the same ``id`` at that ``version``."""

    version: int
    id: str


@dataclass(frozen=True)
class Commit:
    """One commit: its actions, one JSON line each."""

    version: int
    lines: tuple[bytes, ...]

    def actions(self, kind: str) -> Iterator[dict[str, Any]]:
        """The actions of one kind: ``add``, ``remove``, ``txn``. Others are not parsed, as there may be many adds."""
        start = b'{"%s"' % kind.encode()
        return (json.loads(line)[kind] for line in self.lines if line.startswith(start))

    @property
    def transactions(self) -> tuple[Transaction, ...]:
        return tuple(Transaction(action["appId"], action["version"]) for action in self.actions("txn"))

    @property
    def user_metadata(self) -> dict[str, Any]:
        """The JSON in the commit's ``userMetadata``; empty if there is none."""
        for information in self.actions("commitInfo"):
            metadata: dict[str, Any] = json.loads(information.get("userMetadata") or "{}")
            return metadata
        return {}

    @property
    def id(self) -> str:
        """What tells this commit from every other: the id that we gave it, or else a hash of its content."""
        for information in self.actions("commitInfo"):
            if commit_id := information.get(COMMIT_ID) or self.user_metadata.get(USER_COMMIT_ID):
                return str(commit_id)
        return blake2b(b"\n".join(self.lines), digest_size=16).hexdigest()

    @property
    def known(self) -> KnownCommit:
        return KnownCommit(self.version, self.id)

    @property
    def output_rows(self) -> int:
        """The number of rows that the commit wrote, by its own metrics; 0 if it has none."""
        metrics = next((each.get("operationMetrics") for each in self.actions("commitInfo")), None) or {}
        return int(metrics.get("numOutputRows", 0))

    @property
    def timestamp(self) -> int:
        """The commit's time by its writer's clock, in microseconds since 1970. Raises ValueError if it has none."""
        for information in self.actions("commitInfo"):
            if "timestamp" in information:
                return 1000 * int(information["timestamp"])
        raise ValueError(f"commit {self.version} has no time")


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


def commit_name(version: int) -> str:
    """Of the commit's file."""
    return f"{version:020}.json"


def commit_of(path: str, version: int, content: bytes) -> Commit:
    """The commit whose file at ``path`` has this content. Raises ValueError if it is damaged."""
    lines = content.splitlines()
    if not lines or not all(line.startswith(b'{"') and line.endswith(b"}") for line in lines):
        raise ValueError(f"{path} is damaged")
    return Commit(version, tuple(lines))
