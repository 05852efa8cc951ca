"""When ``deltalake`` writes a checkpoint of a Delta table: after every fifth commit, on a disk after every tenth.

Without one, whoever opens the table reads every commit. But on an object store it costs over twenty requests, as
``deltalake`` reads each commit since the last checkpoint twice. A sync of one changed table makes three commits: to the
change log, the table and the cuts. If several of them are due for a checkpoint, they get theirs in different syncs, and
none while Spark writes one, for about thirty.
"""

from __future__ import annotations

import logging
from threading import Lock

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from spark_jobs.delta.files import WRITABLE
from spark_jobs.delta.table import open_table, table_errors
from spark_jobs.delta.transaction_log import last_checkpoint
from spark_jobs.storage import Location

_log = logging.getLogger(__name__)

CHECKPOINT_INTERVAL = 5
_ON_DISK = 10  # as Delta's default: there one costs as much as five commits of ten rows do
_MOST_COMMITS = 10
CHECKPOINT_PROPERTY = "delta.checkpointInterval"
# the least number of commits of this process, to whatever tables of the lake, between two checkpoints
_COMMITS_BETWEEN = 4


class Checkpoints:
    """``last``: by table, the version of its last checkpoint. It was read once, and since then this process has written
    others."""

    def __init__(self) -> None:
        self.last: dict[str, int] = {}
        self._commits_since = _COMMITS_BETWEEN
        self._lock = Lock()

    def note_commit(self) -> None:
        """To be called after each commit of this process."""
        with self._lock:
            self._commits_since += 1

    def note_commit_of_spark(self, table: str, version: int) -> None:
        """Spark writes one with each fifth version, or each tenth. If that is the table's next, those of this process
        wait for a sync."""
        if version % CHECKPOINT_INTERVAL == 0:
            self.last.pop(table, None)  # it is read again
        if (version + 1) % CHECKPOINT_INTERVAL == 0:
            with self._lock:
                self._commits_since = min(self._commits_since, 1)

    def is_turn(self, *, at_once: bool) -> bool:
        """Whether the next checkpoint may be written now; it is then taken for written."""
        with self._lock:
            if not at_once and self._commits_since < _COMMITS_BETWEEN:
                return False
            self._commits_since = 0
            return True


def write_checkpoint_if_due(path: Location, table: DeltaTable, version: int, *, at_once: bool) -> None:
    """Write a checkpoint of ``version`` if enough commits were made since the last one; unless ``at_once``, it may be
    left to one of the next calls. ``table`` is open at that version or an earlier one.
    """
    checkpoints = path.storage.memory(Checkpoints)
    try:
        if checkpoints.last.get(path, version + 1) > version:  # the first look, or another table is there now
            known = last_checkpoint(path)
            checkpoints.last[path] = 0 if known is None else min(version, known.version)
        commits, interval = version - checkpoints.last[path], _interval(path, table)
        if commits < interval or not checkpoints.is_turn(at_once=at_once or commits >= 2 * interval):
            return
        checkpoints.last[path] = version
        if table.version() < version:
            table.update_incremental()
        table.create_checkpoint()
    except (DeltaError, OSError) as error:  # nothing is lost; the next checkpoint covers it too
        _log.warning("%s has no checkpoint of version %d: %s", path, version, error)


def shorten_log(path: Location, commits: int) -> None:
    """To be called where ``commits`` were made since the last checkpoint. Usually their writers have written one, but
    Spark does not if its version for that is somebody else's. Raises LakeError."""
    if commits > _MOST_COMMITS:
        write_checkpoint(path)


def write_checkpoint(path: Location) -> None:
    """Write one of the newest version. Raises LakeError."""
    if (table := open_table(path, path)) is not None:
        with table_errors(f"{path} cannot be written", hint=WRITABLE):
            table.create_checkpoint()


def _interval(path: Location, table: DeltaTable) -> int:
    default = CHECKPOINT_INTERVAL if path.local is None else _ON_DISK
    return int(table.metadata().configuration.get(CHECKPOINT_PROPERTY, default))
