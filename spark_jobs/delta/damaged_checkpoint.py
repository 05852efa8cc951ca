"""A checkpoint that no reader can open, as after a write that was cut off. Readers begin with the newest checkpoint, so
nobody can read the table, even where its commits say all that the checkpoint says.

https://github.com/delta-io/delta/blob/master/PROTOCOL.md#checkpoints
"""

from __future__ import annotations

import logging
from collections import defaultdict
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from spark_jobs.delta.transaction_log import CHECKPOINT, COMMIT, LogFolder
from spark_jobs.storage import Location

_log = logging.getLogger(__name__)


def remove_damaged_checkpoint(table: Location) -> str | None:
    """Remove the newest checkpoints of the table as far as they are damaged, if the commits since the one before them,
    or since the table's beginning, are all there: then every reader can open it again.

    Returns the path of the newest that was removed; None if nothing was, and nothing has changed. Raises OSError.
    """
    folder = LogFolder.of(table)
    names = [file.base_name for file in folder.files()]
    commits = {int(match[1]) for match in map(COMMIT.fullmatch, names) if match}
    checkpoints: dict[int, list[str]] = defaultdict(list)
    for match in filter(None, map(CHECKPOINT.fullmatch, names)):
        checkpoints[int(match[1])].append(folder.file(match[0]))
    damaged: list[str] = []
    base = -1
    for version in sorted(checkpoints, reverse=True):
        if all(_is_readable(folder.filesystem, path) for path in checkpoints[version]):
            base = version
            break
        damaged += checkpoints[version]
    last = max(*commits, *checkpoints, base) if damaged else base
    if not damaged or not commits.issuperset(range(base + 1, last + 1)):
        return None
    with suppress(FileNotFoundError):  # first: it names a checkpoint that readers must find
        folder.filesystem.delete_file(folder.file("_last_checkpoint"))
    for path in damaged:
        folder.filesystem.delete_file(path)
    _log.warning("%s was damaged, and has been removed: the commits of the table say the same", damaged[0])
    return damaged[0]


def _is_readable(filesystem: fs.FileSystem, path: str) -> bool:
    try:
        with filesystem.open_input_file(path) as file:
            pq.ParquetFile(file)
    except pa.ArrowInvalid:
        return False
    return True
