"""The per-user cache folder. Its files make the next start faster, and can be created again at any time."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path


def cache_path(environ: Mapping[str, str]) -> Path:
    """``$XDG_CACHE_HOME/dagster-postgres-cdc``, by default below ``~/.cache``. Raises RuntimeError if there is no
    home."""
    base = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or Path.home(), ".cache")
    return Path(base, "dagster-postgres-cdc")


def trusted_cache() -> Path | None:
    """The cache folder, created if missing; None if that fails, or if other users can write to it."""
    try:
        folder = cache_path(os.environ)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except (OSError, RuntimeError):
        return None
    return folder if is_trusted(folder) else None


def is_trusted(path: Path) -> bool:
    """Whether ``path`` exists, belongs to this user or to root, and nobody else can write it: what is read from it ends
    up in our JVM."""
    try:
        status = path.stat()
    except OSError:
        return False
    return status.st_uid in (0, os.geteuid()) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
