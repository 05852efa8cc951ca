"""The file that says that ``drop`` is removing this lake: from before the first file is deleted until after the last.

A lake of which a part is gone looks like one that was never written, or like a damaged one. With the mark, ``sync``
begins no new log among the remains, and the next ``drop`` knows whose they are when the change log is gone already.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass

from spark_jobs.change_log.log import ChangeLog
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Lake
from spark_jobs.delta.files import lake_errors, lake_filesystem
from spark_jobs.errors import LakeError
from spark_jobs.lake.table_folders import require_folders_of

MARK_NAME = "_being_dropped.json"


@dataclass(frozen=True)
class LakeOwner:
    """Whose change log a lake holds: from where it is read now; the ``log``'s id, None if there is none; and the system
    identifier and slot that its transactions are named by."""

    system_identifier: int
    database: str
    slot: str
    stream: tuple[int, str]
    log: str | None


@dataclass(frozen=True)
class DropMark:
    """``folders``: those of our tables, below ``lake.path``; half removed, they no longer show that they are ours."""

    owner: LakeOwner
    folders: tuple[str, ...]


def read_mark(lake: Lake) -> DropMark | None:
    """None without a mark. One that was cut off while it was written is none: nothing was removed before it stood.
    Raises LakeError."""
    with lake_errors(f"{lake.path} cannot be read"):
        return _read(lake)


def write_mark(lake: Lake, mark: DropMark) -> None:
    filesystem, folder = lake_filesystem(lake.root)
    with lake_errors(f"{lake.path} cannot be written"), filesystem.open_output_stream(f"{folder}/{MARK_NAME}") as file:
        file.write(json.dumps(asdict(mark), indent=2).encode())


def remove_mark(lake: Lake) -> None:
    filesystem, folder = lake_filesystem(lake.root)
    with lake_errors(f"{lake.path} cannot be written"), suppress(FileNotFoundError):
        filesystem.delete_file(f"{folder}/{MARK_NAME}")


def refuse_half_removed(lake: Lake) -> None:
    """Raises LakeError if ``drop`` has begun to remove the lake."""
    if read_mark(lake) is not None:
        raise _half_removed(lake)


def landed_end(lake: Lake) -> WindowMarker | None:
    """The marker of the last window in the change log, None if nothing is landed. Raises LakeError if the log cannot be
    read, and says so if that is because the lake is half removed; and if its tables are not where ``lake.tables`` has
    them now."""
    try:
        checkpoint = ChangeLog(lake.change_log).checkpoint()
    except LakeError:
        with suppress(OSError):  # of storage that fails altogether the first error tells more
            if _read(lake) is not None:
                raise _half_removed(lake) from None
        raise
    if checkpoint is None:
        refuse_half_removed(lake)
    else:
        require_folders_of(lake, checkpoint)
    return checkpoint


def _half_removed(lake: Lake) -> LakeError:
    return LakeError(
        f"the lake at {lake.path} is half removed: a `postgres-cdc drop --lake` was interrupted",
        hint="`postgres-cdc drop --lake` removes the rest; then `postgres-cdc sync` starts a new lake",
    )


def _read(lake: Lake) -> DropMark | None:
    filesystem, folder = lake_filesystem(lake.root)
    try:
        with filesystem.open_input_stream(f"{folder}/{MARK_NAME}") as stream:
            fields = json.loads(stream.read())
        owner = {**fields["owner"], "stream": tuple(fields["owner"]["stream"])}
        return DropMark(LakeOwner(**owner), tuple(fields["folders"]))
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        return None
