"""What a Delta table says of itself, read from its transaction log without Spark.

Each of our commits carries a transaction identifier (https://github.com/delta-io/delta/blob/master/PROTOCOL.md,
"Transaction Identifiers"): ``txnAppId`` is ``pgcdc:{system_identifier}:{slot}:table``, ``txnVersion`` counts our
commits to this table. A writer that has read ``commits`` commits as number ``commits + 1``, and Delta skips a number
that the table has already: of all writers that have read one state, one commits. What a commit brought the table to
stands in its ``userMetadata``.

Not read through the ``deltalake`` library: it refuses tables with type widening, and 1.6 opens another path than the
one it is given when that has a percent sign.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from spark_jobs.change_log.window_marker import SlotIdentity
from spark_jobs.configuration import Lake
from spark_jobs.delta.files import ask_tables, lake_filesystem
from spark_jobs.errors import LakeError
from spark_jobs.lake.cuts import latest_cut
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.qualified_name import QualifiedName

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\..+)?\.parquet")
_PREFIX = "pgcdc:"


@dataclass(frozen=True)
class SnapshotCause:
    """Why a snapshot was taken by itself; ``number`` of such ones in a row, the last ``at`` this time (UTC)."""

    reason: str
    number: int
    at: datetime


@dataclass(frozen=True)
class TableState:
    """``ordinal``: the table shows the source at the end of that window; ``version``: Delta's, of the newest commit.

    ``generation`` names the snapshot that the table grew from: the 16-digit key of ``snapshot_lsn``, and behind a
    hyphen the word of the table's ``Fingerprint`` in it. ``relid`` is the source table's OID. ``commits`` counts ours.
    ``cause``: why that snapshot was taken, None where somebody asked for it.
    """

    name: QualifiedName
    generation: str
    snapshot_lsn: Lsn
    ordinal: int
    version: int
    relid: int | None = None
    commits: int = 0
    cause: SnapshotCause | None = None

    @property
    def is_lost(self) -> bool:
        """Delta's log clean-up has removed the commit that says how far the table is. It needs a new snapshot."""
        return not self.generation

    @property
    def word(self) -> str:
        """Empty: not known."""
        return self.generation.partition("-")[2]


def stream_id(system_identifier: int, slot: str) -> str:
    """What the identifiers of one slot's tables begin with."""
    return f"{_PREFIX}{system_identifier}:{slot}:"


def generation_of(snapshot_lsn: Lsn, word: str = "") -> str:
    return f"{snapshot_lsn.key}-{word}" if word else snapshot_lsn.key


def txn_app_id(system_identifier: int, slot: str) -> str:
    """Of our commits to any table of this slot."""
    return f"{stream_id(system_identifier, slot)}table"


def table_state(lake: Lake, name: QualifiedName, system_identifier: int, slot: str) -> TableState | None:
    """The state of one table, or None where there is no table of this slot yet: it needs its snapshot.

    Raises LakeError for a Delta table that nothing of ours has written, and for a log that cannot be read.
    """
    path = lake.table(name)
    wanted = txn_app_id(system_identifier, slot)
    ours = False
    try:
        log = _DeltaLog.open(path)
        if log is None:
            return None
        for commit in log.transactions():
            ours = ours or commit.app_id.startswith(_PREFIX)
            if commit.app_id == wanted:
                return _state(lake, name, log.version, commit)
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise LakeError(f"{name}: the transaction log of {path} cannot be read ({type(error).__name__})") from error
    if not ours:
        raise LakeError(
            f"{name}: {path} holds a Delta table that this pipeline did not write",
            hint="move it away, or choose another lake.path",
        )
    return None


def table_states(
    lake: Lake, names: Sequence[QualifiedName], identity: SlotIdentity
) -> dict[QualifiedName, TableState | LakeError]:
    """Of the tables that something lies in the lake of; the error of what cannot be read, and must not be replaced
    unasked: it stops that table alone."""
    found = ask_tables(lambda name: table_state(lake, name, identity.system_identifier, identity.slot), names)
    return {name: state for name, state in found.items() if state is not None}


def has_delta_table(lake: Lake, name: QualifiedName) -> bool:
    """Whether anything of Delta lies where the table belongs, whoever wrote it: cheaper than its state."""
    filesystem, path = lake_filesystem(f"{lake.table(name)}/_delta_log")
    return bool(filesystem.get_file_info(path).type == fs.FileType.Directory)


@dataclass(frozen=True)
class _Transaction:
    """A transaction identifier in the log, with the ``userMetadata`` of its commit: None when that is cleaned away."""

    app_id: str
    version: int
    user_metadata: dict[str, Any] | None


def _state(lake: Lake, name: QualifiedName, version: int, commit: _Transaction) -> TableState:
    told = commit.user_metadata
    if told is not None:
        generation = told["generation"]
        return TableState(
            name,
            generation,
            _snapshot_lsn(generation),
            told["last_window"],
            version,
            told["relid"],
            commit.version,
            _cause(told.get("cause")),
        )
    # nothing was written for as long as Delta keeps its history, while others committed: the latest cut knows
    cut = latest_cut(lake)
    known = cut.table(name) if cut else None
    if cut is None or known is None or known.commits != commit.version:
        return TableState(name, "", Lsn(0), -1, version, None, commit.version)
    lsn = _snapshot_lsn(known.generation)
    return TableState(name, known.generation, lsn, cut.ordinal, version, known.relid, commit.version)


def _cause(told: dict[str, Any] | None) -> SnapshotCause | None:
    return None if told is None else SnapshotCause(told["reason"], told["number"], datetime.fromisoformat(told["at"]))


def _snapshot_lsn(generation: str) -> Lsn:
    return Lsn(int(generation.partition("-")[0], 16))


@dataclass(frozen=True)
class _DeltaLog:
    """The names in ``_delta_log``: commits newest first, and the parts of the newest checkpoint."""

    filesystem: fs.FileSystem
    commits: tuple[tuple[int, str], ...]
    checkpoint: int
    checkpoint_parts: tuple[str, ...]

    @property
    def version(self) -> int:
        return self.commits[0][0] if self.commits else self.checkpoint

    @classmethod
    def open(cls, table: str) -> _DeltaLog | None:
        filesystem, path = lake_filesystem(f"{table}/_delta_log")
        files = filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True))
        commits = {int(m[1]): file.path for file in files if (m := _COMMIT.fullmatch(file.base_name))}
        parts = [(int(m[1]), file.path) for file in files if (m := _CHECKPOINT.fullmatch(file.base_name))]
        checkpoint = max((version for version, _ in parts), default=-1)
        if not commits and not parts:
            return None
        return cls(
            filesystem,
            tuple(sorted(commits.items(), reverse=True)),
            checkpoint,
            tuple(path for version, path in parts if version == checkpoint),
        )

    def transactions(self) -> Iterator[_Transaction]:
        """Newest first. Commits that carry none (OPTIMIZE) are passed over."""
        for _, path in self.commits:  # those behind the checkpoint too: it lacks what a commit says of itself
            with self.filesystem.open_input_stream(path) as stream:
                lines = stream.read().splitlines()
            for line in lines:
                # adds and removes, the bulk of a commit, need no parsing
                if line.startswith(b'{"txn"'):
                    action = json.loads(line)["txn"]
                    yield _Transaction(action["appId"], action["version"], _user_metadata(lines))
        found: list[dict[str, Any]] = []
        for path in self.checkpoint_parts:
            rows = pq.read_table(path, filesystem=self.filesystem, columns=["txn"]).column("txn").to_pylist()
            found += [row for row in rows if row and row["appId"]]
        for row in sorted(found, key=lambda row: row.get("lastUpdated") or 0, reverse=True):
            yield _Transaction(row["appId"], row["version"], None)


def _user_metadata(lines: list[bytes]) -> dict[str, Any]:
    """What ``table_commit`` wrote; empty where the commit says nothing."""
    for line in lines:
        if line.startswith(b'{"commitInfo"'):
            written: dict[str, Any] = json.loads(json.loads(line)["commitInfo"].get("userMetadata") or "{}")
            return written
    return {}
