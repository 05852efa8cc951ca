"""The lake's path: whether this process can write there."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from uuid import uuid4

from pyarrow import fs

from spark_jobs.configuration import Lake
from spark_jobs.delta.files import lake_filesystem
from spark_jobs.delta.whole_files import create_file
from spark_jobs.doctor.checks import Check, fail, ok
from spark_jobs.errors import LakeError, one_line
from spark_jobs.storage import Location

AREA = "lake"
_MESSAGE_LENGTH = 300  # object stores add request identifiers and whole documents


def lake_path_check(lake: Lake) -> Check:
    """Write a file and delete it again: permissions alone do not prove that a write succeeds. An object store must also
    refuse to create a file that is there, as commits rely on that."""
    try:
        filesystem, folder = lake_filesystem(lake.root)
    except LakeError as error:  # sync opens the path in the same way
        return fail(AREA, "lake.path", _brief(error.what), error.hint)
    if isinstance(filesystem, fs.LocalFileSystem):
        return _local(Path(folder))
    return _remote(lake.root, filesystem, folder)


def _local(path: Path) -> Check:
    existing = path
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    remedy = f"let {_user()} write there, or choose another lake.path"
    if not existing.is_dir():
        return fail(AREA, "lake.path", f"{existing} is not a folder", "choose another lake.path")
    try:
        with tempfile.NamedTemporaryFile(dir=existing, prefix=".postgres-cdc-doctor-"):
            pass
    except OSError as error:
        return fail(AREA, "lake.path", f"{existing} cannot be written: {error.strerror}", remedy)
    outcome = f"{path} is writable" if existing == path else f"{path} will be created"
    return ok(AREA, "lake.path", outcome)


def _remote(path: Location, filesystem: fs.FileSystem, folder: str) -> Check:
    name, remedy = f".postgres-cdc-doctor-{uuid4().hex}", "check the bucket and the credentials in the environment"
    try:
        with filesystem.open_output_stream(f"{folder}/{name}") as stream:
            stream.write(b"")
        was_created_again = create_file(path, name, b"again")
        filesystem.delete_file(f"{folder}/{name}")
    except OSError as error:
        return fail(AREA, "lake.path", f"{path} cannot be written: {_brief(str(error))}", remedy)
    except LakeError as error:
        return fail(AREA, "lake.path", _brief(error.what), remedy)
    if was_created_again:
        what = f"{path} creates a file that is there already: of two writers of one version, both would commit"
        return fail(AREA, "lake.path", what, "use a store, or a version of it, that honours If-None-Match")
    return ok(AREA, "lake.path", f"{path} is writable, and refuses a second file of one name")


def _brief(text: str) -> str:
    return one_line(text)[:_MESSAGE_LENGTH]


def _user() -> str:
    return f"user {os.geteuid()}" if hasattr(os, "geteuid") else "this user"
