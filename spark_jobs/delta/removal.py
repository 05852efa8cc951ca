"""Files of the lake listed and deleted by name, so that nothing is deleted that was not looked at."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pyarrow import fs

from spark_jobs.delta.files import REQUESTS_AT_ONCE, lake_errors, lake_filesystem
from spark_jobs.storage import Location


@dataclass(frozen=True)
class LakeFile:
    """``name``: its path below the folder that was listed."""

    name: str
    size: int


def entries(path: Location) -> dict[str, LakeFile | None]:
    """What lies directly in the folder, by name: a file, or None for a folder. Empty if there is no such folder."""
    filesystem, folder = lake_filesystem(path)
    with lake_errors(f"{path} cannot be listed"):
        found = filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    return {
        info.base_name: None if info.type == fs.FileType.Directory else LakeFile(info.base_name, info.size or 0)
        for info in sorted(found, key=lambda info: str(info.path))
    }


def files_below(path: Location) -> tuple[LakeFile, ...]:
    """All files below the folder, in order. A symbolic link is one file, whatever it leads to: what is behind it may be
    anybody's."""
    filesystem, folder = lake_filesystem(path)
    with lake_errors(f"{path} cannot be listed"):
        if isinstance(filesystem, fs.LocalFileSystem):
            found = _below_local(folder)
        else:
            listed = filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True, recursive=True))
            start = len(folder.rstrip("/")) + 1
            found = [LakeFile(info.path[start:], info.size or 0) for info in listed if info.type == fs.FileType.File]
    return tuple(sorted(found, key=lambda file: file.name))


def delete_files(path: Location, names: Sequence[str], *, are_all: bool) -> None:
    """Delete these files below the folder; one that is gone already is no error. ``are_all``: the folder holds nothing
    else, so an object store can delete many with each request."""
    filesystem, folder = lake_filesystem(path)

    def delete(name: str) -> None:
        with suppress(FileNotFoundError):
            filesystem.delete_file(f"{folder}/{name}")

    with lake_errors(f"{path} cannot be removed"):
        if are_all and not isinstance(filesystem, fs.LocalFileSystem):
            _delete_whole(filesystem, folder)
            return
        with ThreadPoolExecutor(REQUESTS_AT_ONCE, thread_name_prefix="lake") as pool:
            list(pool.map(delete, names))


def remove_empty_folders(path: Location) -> None:
    """Remove the folder and those in it, if no file is in them. One that cannot be removed does no harm."""
    filesystem, folder = lake_filesystem(path)
    if isinstance(filesystem, fs.LocalFileSystem):
        for inner, _, _ in os.walk(folder, topdown=False):
            with suppress(OSError):
                Path(inner).rmdir()
    elif not files_below(path):
        with suppress(OSError):
            _delete_whole(filesystem, folder)


def _below_local(folder: str) -> list[LakeFile]:
    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error

    found = []
    for inner, folders, files in os.walk(folder, onerror=refuse):
        links = [name for name in folders if Path(inner, name).is_symlink()]
        for name in (*files, *links):
            file = Path(inner, name)
            found.append(LakeFile(str(file.relative_to(folder)), file.lstat().st_size))
    return found


def _delete_whole(filesystem: fs.FileSystem, folder: str) -> None:
    with suppress(FileNotFoundError):
        filesystem.delete_dir(folder)
