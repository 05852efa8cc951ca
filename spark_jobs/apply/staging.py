"""Folders in the lake for computed rows that are not committed yet."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from pyarrow import fs

from spark_jobs.configuration import Lake
from spark_jobs.delta.files import lake_errors, lake_filesystem
from spark_jobs.lake.table_state import TableState
from spark_jobs.storage import Location

_log = logging.getLogger(__name__)

# the number of the commit that a staging folder is for
_NUMBER = re.compile(r"(\d+)-")


@contextmanager
def staging_folder(lake: Lake, state: TableState) -> Iterator[Location]:
    """An empty folder in the lake, for executors and driver alike. It is removed when the context ends.

    Its name begins with the number of the commit that it is for: the next one after ``state``.
    """
    filesystem, table = sweep_staging(lake, state)
    name = f"{state.commits + 1}-{secrets.token_hex(8)}"
    folder, path = lake.staging(state.name) / name, f"{table}/{name}"
    with lake_errors(f"{state.name}: {folder} cannot be written"):
        filesystem.create_dir(path, recursive=True)
    try:
        yield folder
    finally:
        _remove(filesystem, path)


def sweep_staging(lake: Lake, state: TableState) -> tuple[fs.FileSystem, str]:
    """Remove what killed processes have staged for commits that the table already has. Returns the table's folder.

    Folders staged for the next commit are kept: locks may be lost, and a process that loses some of its files might
    commit the rest.
    """
    filesystem, folder = lake_filesystem(lake.staging(state.name))
    with lake_errors(f"{state.name}: {folder} cannot be read"):
        listed = filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    for staged in listed:
        if (number := _NUMBER.match(staged.base_name)) and int(number[1]) <= state.commits:
            _remove(filesystem, staged.path)
    return filesystem, folder


def _remove(filesystem: fs.FileSystem, folder: str) -> None:
    try:
        filesystem.delete_dir(folder)
    except OSError as error:  # nothing depends on the removal, and the next process sweeps again
        _log.warning("%s could not be removed: %s", folder, error)
