"""The lake's path: whether this process can write there."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from uuid import uuid4

from pyarrow import fs

from spark_jobs.configuration import Lake
from spark_jobs.delta.files import lake_filesystem
from spark_jobs.doctor.checks import Check, fail, ok
from spark_jobs.errors import LakeError, one_line

AREA = "lake"
_MESSAGE_LENGTH = 300  # object stores add request identifiers and whole documents


def lake_path_check(lake: Lake) -> Check:
    """Write a file and delete it again: permissions alone do not prove that a write succeeds."""
    try:
        filesystem, folder = lake_filesystem(lake.root)
    except LakeError as error:  # sync opens the path in the same way
        return fail(AREA, "lake.path", _brief(error.what), error.hint)
    if isinstance(filesystem, fs.LocalFileSystem):
        return _local(Path(folder))
    return _remote(lake.path, filesystem, folder)


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


def _remote(path: str, filesystem: fs.FileSystem, folder: str) -> Check:
    probe = f"{folder}/.postgres-cdc-doctor-{uuid4().hex}"
    try:
        with filesystem.open_output_stream(probe) as stream:
            stream.write(b"")
        filesystem.delete_file(probe)
    except OSError as error:
        remedy = "check the bucket and the credentials in the environment"
        return fail(AREA, "lake.path", f"{path} cannot be written: {_brief(str(error))}", remedy)
    return ok(AREA, "lake.path", f"{path} is writable")


def _brief(text: str) -> str:
    return one_line(text)[:_MESSAGE_LENGTH]


def _user() -> str:
    return f"user {os.geteuid()}" if hasattr(os, "geteuid") else "this user"
