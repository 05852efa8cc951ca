"""What killed snapshots leave in the folder of a table that does not exist yet: data files that no version names.

Once the table exists, ``maintain`` removes such files, but only after the time for which cuts are kept. So each attempt
to read a large table could leave another copy of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress

from pyarrow import fs

from spark_jobs.delta.files import lake_filesystem
from spark_jobs.storage import Location
from spark_jobs.writers.with_arrow.whole_table import STEM

_LOG = "_delta_log/"
# the folder in that of a table, for the chunks of a snapshot that are shown before the table is
PARTIAL = "partial"
PARTIAL_LOG = f"{PARTIAL}/{_LOG}"
# as Delta names the files of a table with column mapping, and we those of a snapshot; a user's own files are never
# touched
_DATA_FILE = re.compile(
    rf"(\w{{2}}/\.?part|({PARTIAL}/)?{STEM})-\d{{5}}-[0-9a-f]{{8}}-[^/]+\.parquet(\.crc)?|{PARTIAL_LOG}[^/]+"
)


def files_without_table(path: Location) -> tuple[str, ...]:
    """The data files in the folder ``path``; none if it holds a Delta table, or cannot be listed.

    They may be removed once a version 0 is committed that was written after this call: it names none of them. A writer
    of them that still runs can no longer commit a version 0: it is overtaken, and reads the table's state again."""
    filesystem, folder = lake_filesystem(path)
    try:
        infos = filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True, recursive=True))
    except OSError:
        return ()
    files = {info.path: info.path.removeprefix(folder).lstrip("/") for info in infos if info.type == fs.FileType.File}
    if any(name.startswith(_LOG) for name in files.values()):
        return ()
    return tuple(file for file, name in files.items() if _DATA_FILE.fullmatch(name))


def remove_files(path: Location, files: Sequence[str]) -> None:
    """Delete ``files`` of the folder ``path``. A file that cannot be deleted does no harm."""
    filesystem, _ = lake_filesystem(path)
    for file in files:
        with suppress(OSError):
            filesystem.delete_file(file)
