"""The lake's storage as Arrow reads it, for what needs no Spark."""

from __future__ import annotations

from pyarrow import fs

# an object store answers each in tens of milliseconds, and gladly many at a time
REQUESTS_AT_ONCE = 16

_ARROW_SCHEMES = {"s3a": "s3", "s3n": "s3"}


def lake_filesystem(path: str) -> tuple[fs.FileSystem, str]:
    """Hadoop's names of schemes (s3a, file) as Arrow calls them; a plain path is local and taken letter by letter."""
    scheme, separator, rest = path.partition("://")
    if not separator:
        return fs.LocalFileSystem(), path.removeprefix("file:")
    if scheme == "file":
        return fs.LocalFileSystem(), rest
    found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(f"{_ARROW_SCHEMES.get(scheme, scheme)}://{rest}")
    return found


def table_filesystem(path: str) -> fs.FileSystem:
    """One Delta table's folder as a filesystem of its own, for ``DeltaTable.to_pyarrow_dataset``.

    Without it ``deltalake`` hands Arrow a filesystem written in Python: Arrow's threads may still hold files of that
    when the interpreter ends, and then the process aborts after its work is done.
    """
    filesystem, folder = lake_filesystem(path)
    return fs.SubTreeFileSystem(folder, filesystem)
