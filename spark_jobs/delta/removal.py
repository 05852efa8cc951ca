"""The files of the lake, listed so that what is deleted is deleted by name."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pyarrow import fs

from spark_jobs.delta.files import lake_errors, lake_filesystem
from spark_jobs.storage import Location

_NANOSECONDS = 1_000_000  # of a millisecond
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
# how writers of Delta tables name data files and deletion vectors, and Hadoop the checksums beside them
OF_DELTA = re.compile(rf"(.*/)?[^/]*{_UUID}[^/]*\.(parquet|bin|crc)")


@dataclass(frozen=True)
class LakeFile:
    """``name``: its path below the folder that was listed. ``modified``: in milliseconds since 1970, by the storage."""

    name: str
    size: int
    modified: int


def entries(path: Location) -> dict[str, LakeFile | None]:
    """What lies directly in the folder, by name: a file, or None for a folder. Empty if there is no such folder."""
    filesystem, folder = lake_filesystem(path)
    with lake_errors(f"{path} cannot be listed"):
        infos = filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    return {
        info.base_name: None if info.type == fs.FileType.Directory else _file(info.base_name, info)
        for info in sorted(infos, key=lambda info: str(info.path))
    }


def files_below(path: Location) -> tuple[LakeFile, ...]:
    """All files below the folder, in order. A symbolic link is one file, whatever it leads to: what is behind it may be
    anybody's."""
    filesystem, folder = lake_filesystem(path)
    with lake_errors(f"{path} cannot be listed"):
        if isinstance(filesystem, fs.LocalFileSystem):
            files = _below_local(folder)
        else:
            listed = filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True, recursive=True))
            start = len(folder.rstrip("/")) + 1
            files = [_file(info.path[start:], info) for info in listed if info.type == fs.FileType.File]
    return tuple(sorted(files, key=lambda file: file.name))


def remove_empty_folders(path: Location) -> None:
    """Remove the folder and those in it, if no file is in them. One that cannot be removed does no harm."""
    filesystem, folder = lake_filesystem(path)
    if isinstance(filesystem, fs.LocalFileSystem):
        for inner, _, _ in os.walk(folder, topdown=False):
            with suppress(OSError):
                Path(inner).rmdir()
    elif not files_below(path):
        with suppress(OSError):
            filesystem.delete_dir(folder)


def _file(name: str, info: fs.FileInfo) -> LakeFile:
    modified = time.time_ns() if info.mtime_ns is None else info.mtime_ns
    return LakeFile(name, info.size or 0, modified // _NANOSECONDS)


def _below_local(folder: str) -> list[LakeFile]:
    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error

    lake_files = []
    for inner, folders, files in os.walk(folder, onerror=refuse):
        links = [name for name in folders if Path(inner, name).is_symlink()]
        for name in (*files, *links):
            file = Path(inner, name)
            stat = file.lstat()
            lake_files.append(LakeFile(str(file.relative_to(folder)), stat.st_size, stat.st_mtime_ns // _NANOSECONDS))
    return lake_files
