"""The lake's path: can this process write there."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
from pyarrow import fs

from spark_jobs.configuration import Lake
from spark_jobs.doctor.checks import Check, fail, ok, warn

AREA = "lake"


def lake_path_check(lake: Lake) -> Check:
    """Write a file and delete it again: what the rights of a path promise and what a disk does are two things."""
    scheme, _, rest = lake.path.partition("://")
    if rest and scheme != "file":
        return _remote(lake.path)
    return _local(Path(rest if rest else lake.path))


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
    found = f"{path} is writable" if existing == path else f"{path} will be made"
    return ok(AREA, "lake.path", found)


def _remote(path: str) -> Check:
    remedy = "check the bucket and the credentials in the environment"
    try:
        filesystem, folder = fs.FileSystem.from_uri(path)
        probe = f"{folder}/.postgres-cdc-doctor-{uuid4().hex}"
        with filesystem.open_output_stream(probe) as stream:
            stream.write(b"")
        filesystem.delete_file(probe)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        return warn(AREA, "lake.path", f"{path} was not tried: no way to reach this scheme from here", "try sync")
    except OSError as error:
        return fail(AREA, "lake.path", f"{path} cannot be written: {' '.join(str(error).split())[:200]}", remedy)
    return ok(AREA, "lake.path", f"{path} is writable")


def _user() -> str:
    return f"user {os.geteuid()}" if hasattr(os, "geteuid") else "this user"
