"""When ``deltalake`` writes a checkpoint of a Delta table: after every fifth commit.

Without one, whoever opens the table reads every commit. But on an object store it costs over twenty requests, as
``deltalake`` reads each commit since the last checkpoint twice. A sync of one changed table makes three commits: to the
change log, the table and the cuts. If several of them are due for a checkpoint, they get theirs in different syncs.
"""

from __future__ import annotations

import logging
from threading import Lock

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from spark_jobs.delta.transaction_log import last_checkpoint

_log = logging.getLogger(__name__)

CHECKPOINT_INTERVAL = 5
_PROPERTY = "delta.checkpointInterval"
# the least number of commits of this process, to whatever tables, between two checkpoints
_COMMITS_BETWEEN = 4

_lock = Lock()
_commits_since = _COMMITS_BETWEEN
# by table, the version of its last checkpoint: it was read once, and since then this process has written others
_last: dict[str, int] = {}


def note_commit() -> None:
    """To be called after each commit of this process."""
    global _commits_since
    with _lock:
        _commits_since += 1


def write_checkpoint_if_due(path: str, table: DeltaTable, version: int, *, at_once: bool) -> None:
    """Write a checkpoint of ``version`` if enough commits were made since the last one; unless ``at_once``, it may be
    left to one of the next calls. ``table`` is open at that version or an earlier one.
    """
    try:
        if _last.get(path, version + 1) > version:  # the first look, or another table is there now
            _last[path] = min(version, last_checkpoint(path) or 0)
        if version - _last[path] < _interval(table) or not _is_turn(at_once=at_once):
            return
        _last[path] = version
        if table.version() < version:
            table.update_incremental()
        table.create_checkpoint()
    except (DeltaError, OSError) as error:  # nothing is lost; the next checkpoint covers it too
        _log.warning("%s has no checkpoint of version %d: %s", path, version, error)


def _is_turn(*, at_once: bool) -> bool:
    global _commits_since
    with _lock:
        if not at_once and _commits_since < _COMMITS_BETWEEN:
            return False
        _commits_since = 0
        return True


def _interval(table: DeltaTable) -> int:
    return int(table.metadata().configuration.get(_PROPERTY, CHECKPOINT_INTERVAL))
