"""What others on the machine can see of a command while it runs: arguments of its processes, Spark's web pages, and
files that are there for a moment only."""

from __future__ import annotations

import http.client
import json
import os
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

_PROCESSES_SECONDS, _PAGES_SECONDS = 0.2, 0.5
_FILE_BYTES = 1 << 20  # jars and blocks of rows are larger
_PAGES = ("environment/", "jobs/", "stages/", "SQL/", "executors/", "api/v1/applications")
# of each application
_DOCUMENTS = ("environment", "jobs", "stages?details=true", "sql?details=true&planDescription=true", "allexecutors")


@dataclass(frozen=True)
class Seen:
    """``pages`` by their address, ``files`` by their path: the newest content of each."""

    command_lines: set[str] = field(default_factory=set)
    pages: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)


@contextmanager
def watched(ui_port: int, passing: Path) -> Iterator[Seen]:
    """Looks until the block ends; ``passing``: a folder whose small files are read each time."""
    seen, done = Seen(), threading.Event()
    looks = [(_processes, _PROCESSES_SECONDS), (_files, _PROCESSES_SECONDS), (_pages, _PAGES_SECONDS)]

    def look_again(look: object, seconds: float) -> None:
        while not done.wait(seconds):
            look(seen, ui_port, passing)  # type: ignore[operator]

    threads = [threading.Thread(target=look_again, args=look, daemon=True) for look in looks]
    for thread in threads:
        thread.start()
    try:
        yield seen
    finally:
        done.set()
        for thread in threads:
            thread.join()


def _processes(seen: Seen, ui_port: int, passing: Path) -> None:
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it has ended
            seen.command_lines.add(" ".join(process.cmdline()))


def _files(seen: Seen, ui_port: int, passing: Path) -> None:
    # os.walk passes over a folder that is gone by now; rglob raises
    for file in (Path(folder, name) for folder, _, names in os.walk(passing) for name in names):
        with suppress(OSError):  # it is gone, or a socket
            if file.is_file() and file.stat().st_size < _FILE_BYTES:
                seen.files[str(file)] = file.read_bytes().decode(errors="replace")


def _pages(seen: Seen, ui_port: int, passing: Path) -> None:
    root = f"http://127.0.0.1:{ui_port}"
    for page in _PAGES:
        _page(seen, f"{root}/{page}")
    listed = seen.pages.get(f"{root}/api/v1/applications", "")
    for application in json.loads(listed) if listed.startswith("[") else ():  # a page says that Spark is starting
        for document in _DOCUMENTS:
            _page(seen, f"{root}/api/v1/applications/{application['id']}/{document}")


def _page(seen: Seen, address: str) -> None:
    """What a page says before Spark has started, and when it has ended, does not count."""
    with (
        suppress(urllib.error.URLError, http.client.HTTPException, OSError),
        urllib.request.urlopen(address, timeout=5) as answer,  # noqa: S310
    ):
        seen.pages[address] = answer.read().decode()
