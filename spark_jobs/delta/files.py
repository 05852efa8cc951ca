"""The lake's storage through Arrow's filesystems, for work that does not need Spark: folders and what lies in them,
listed so that what is deleted is deleted by name."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pyarrow as pa
from pyarrow import fs

from spark_jobs.errors import LakeError, StorageBusyError, new_snapshot
from spark_jobs.object_stores import arrow_filesystem
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.retries import again_when_lost
from spark_jobs.storage import Location

Answer = TypeVar("Answer")
_NANOSECONDS = 1_000_000  # of a millisecond
REACHABLE = "check lake.path, its permissions, and the credentials of its storage"
WRITABLE = "check lake.path, its permissions, the room on its disk, and the credentials of its storage"

BUSY = "run it again when the storage is less busy"
FILE_GONE = "a file that the table names is gone: restore it, or move the table's folder away to have it read again"
# of a data file: what libraries say of one in a folder, on S3 and elsewhere
_GONE = re.compile(
    r"NoSuchKey|NO_SUCH_KEY|Object at location \S+ not found"
    r"|(?:No such file or directory|Path does not exist)\W+\S+\.parquet\b",
    re.IGNORECASE,
)

# what object stores say through each of the libraries that ask them, and what to do
_STORAGE_HINTS = {
    r"ACCESS_DENIED|necessary privileges|credential|Forbidden|Unauthorized|InvalidAccessKey|SignatureDoesNotMatch": (
        "check the credentials of the lake's storage, and that they may read and write lake.path"
    ),
    r"Slow_?\s?Down|TooManyRequests|Service_?\s?Unavailable|Internal ?Server ?Error|InternalError|INTERNAL_FAILURE"
    r"|(?:response code|HTTP status) (?:429|50\d)|timed? ?out|Timeout was reached": BUSY,
    r"dns error|resolve host|Connection refused|connect error|NETWORK_CONNECTION|No route to host": (
        "check the address of the lake's storage, and that this machine can reach it; then run it again"
    ),
    r"NoSuchBucket|NO_SUCH_BUCKET|bucket does not exist": "create the bucket, or correct lake.path",
    r"No space left|Disk quota": "lake.path is full: make room on its disk, then run it again",
}


def storage_error(what: str, message: str, otherwise: str = WRITABLE) -> LakeError:
    """The error of the lake's storage that has failed with the words ``message``. ``otherwise``: what to do if they are
    not known, or if a file is gone."""
    if otherwise in (WRITABLE, REACHABLE) and _GONE.search(message):
        otherwise = FILE_GONE
    known = (hint for words, hint in _STORAGE_HINTS.items() if re.search(words, message, re.IGNORECASE))
    hint = next(known, otherwise)
    if hint == BUSY:
        return StorageBusyError(f"{what}: the storage is busy: {message}", hint=hint)
    return LakeError(f"{what}: {message}", hint=hint)


@contextmanager
def files_of(table: object) -> Iterator[None]:
    """Where a file is gone, the hint names the command for this table."""
    try:
        yield
    except LakeError as error:
        if error.hint != FILE_GONE:
            raise
        raise LakeError(error.what, hint=file_gone(table)) from None


def file_gone(table: object) -> str:
    """The hint for a data file of ``table``."""
    return f"a file that the table names is gone: if somebody deleted it, {new_snapshot(table)}"


# an object store takes tens of milliseconds per request, but serves many at once
REQUESTS_AT_ONCE = 16


def lake_filesystem(path: Location) -> tuple[fs.FileSystem, str]:
    """The filesystem of ``path``, and the path in it, percent signs included.

    Raises LakeError if the storage cannot be reached, or is not supported.
    """
    if path.local is not None:
        return fs.LocalFileSystem(), path.local
    try:
        return arrow_filesystem(path)
    except (pa.ArrowException, OSError) as error:
        raise storage_error(f"{path} cannot be opened", str(error), REACHABLE) from None


def decoded_path(path: Location) -> Location:
    """A file URI as a plain path; pyarrow would not decode its percent signs. Other paths are returned as they are."""
    return Location(url2pathname(urlsplit(path).path), path.storage) if path.startswith("file:") else path


@contextmanager
def lake_errors(what: str) -> Iterator[None]:
    """Raise the storage's errors as LakeError: ``what`` and the error's own text, which names files, never rows."""
    try:
        yield
    except OSError as error:
        raise storage_error(what, str(error)) from None


def table_filesystem(path: Location) -> fs.FileSystem:
    """One Delta table's folder as an Arrow filesystem.

    The one that ``deltalake`` offers is written in Python: if Arrow's threads still hold files of it when the
    interpreter ends, the process aborts after its work is done.
    """
    filesystem, folder = lake_filesystem(path)
    return fs.SubTreeFileSystem(folder, filesystem)


def create_local_folder(path: Location) -> None:
    """Create the folder of a table where the storage has folders: object stores have only names. Raises LakeError."""
    filesystem, folder = lake_filesystem(path)
    if isinstance(filesystem, fs.LocalFileSystem):
        with lake_errors(f"{path} cannot be created"):
            filesystem.create_dir(folder)


def existing_folders(paths: Iterable[Location]) -> frozenset[str]:
    """Those of ``paths`` that are folders; with one listing of each folder that they lie in. Raises OSError."""
    parents: dict[Location, set[str]] = {}
    for path in paths:
        parent, _, name = path.rpartition("/")
        parents.setdefault(Location(parent, path.storage), set()).add(name)
    return frozenset(f"{parent}/{name}" for parent, names in parents.items() for name in names & _folder_names(parent))


def _folder_names(path: Location) -> frozenset[str]:
    filesystem, folder = lake_filesystem(path)
    listed = filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    return frozenset(entry.base_name for entry in listed if entry.type == fs.FileType.Directory)


def ask_tables(
    ask: Callable[[QualifiedName], Answer], names: Sequence[QualifiedName]
) -> dict[QualifiedName, Answer | LakeError]:
    """For each table what ``ask`` returns, or the LakeError that it raises, in the order of ``names``. Several tables
    are asked at once."""
    ask_again = again_when_lost(ask)

    def answer_or_error(name: QualifiedName) -> Answer | LakeError:
        try:
            return ask_again(name)
        except LakeError as error:
            return error

    with ThreadPoolExecutor(REQUESTS_AT_ONCE, thread_name_prefix="lake") as pool:
        return dict(zip(names, pool.map(answer_or_error, names), strict=True))


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
            try:
                stat = file.lstat()
            except FileNotFoundError:  # deleted or renamed by another process since the folder was read
                continue
            lake_files.append(LakeFile(str(file.relative_to(folder)), stat.st_size, stat.st_mtime_ns // _NANOSECONDS))
    return lake_files
