"""One commit of a Delta table, as its file in ``_delta_log`` describes it.

A version's number does not say whose commit it is: Spark writes to S3 without a condition, so of two writers of one
version the later replaces the other's commit (``S3SingleDriverLogStore``), and both believe that theirs stands. What
says it is the commit's ``id``.
https://github.com/delta-io/delta/blob/master/PROTOCOL.md#delta-log-entries
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

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
    def _information(self) -> dict[str, Any]:
        """What its writer says about it; empty if it says nothing."""
        return next(self.actions("commitInfo"), {})

    @property
    def operation(self) -> str:
        """What its writer calls it, such as MERGE; empty if it does not say."""
        return str(self._information.get("operation", ""))

    @property
    def restored_version(self) -> int | None:
        """The version that a RESTORE brought back; None if it was named by a time."""
        version = (self._information.get("operationParameters") or {}).get("version")
        return None if version is None else int(version)

    @property
    def output_rows(self) -> int:
        """The number of rows that the commit wrote, by its own metrics; 0 if it has none."""
        return int((self._information.get("operationMetrics") or {}).get("numOutputRows", 0))

    @property
    def timestamp(self) -> int:
        """The commit's time by its writer's clock, in microseconds since 1970. Raises ValueError if it has none."""
        for information in self.actions("commitInfo"):
            if "timestamp" in information:
                return 1000 * int(information["timestamp"])
        raise ValueError(f"commit {self.version} has no time")


def commit_name(version: int) -> str:
    """Of the commit's file."""
    return f"{version:020}.json"


def commit_of(path: str, version: int, content: bytes) -> Commit:
    """The commit whose file at ``path`` has this content. Raises ValueError if it is damaged."""
    lines = content.splitlines()
    if not lines or not all(line.startswith(b'{"') and line.endswith(b"}") for line in lines):
        raise ValueError(f"{path} is damaged")
    return Commit(version, tuple(lines))
