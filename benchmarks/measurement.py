"""One figure of a run, and the clock and scale that take it."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil

Result = TypeVar("Result")
_SAMPLE_SECONDS = 0.1


@dataclass(frozen=True)
class Measurement:
    """``count`` things in ``seconds``; ``ratio`` of that rate to the limit of its kind; ``target`` for it, from below
    for a ratio and from above for seconds (``at_most``) and bytes."""

    stage: str
    seconds: float | None = None
    count: int | None = None
    ratio: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    mebibytes: float | None = None

    @property
    def rate(self) -> float | None:
        return self.count / self.seconds if self.count and self.seconds else None

    @property
    def met(self) -> bool | None:
        if self.at_least is not None and self.ratio is not None:
            return self.ratio >= self.at_least
        if self.at_most is not None and self.seconds is not None:
            return self.seconds <= self.at_most
        return None


def timed(work: Callable[[], Result]) -> tuple[Result, float]:
    """The result of ``work`` and the seconds it took."""
    began = time.monotonic()
    result = work()
    return result, time.monotonic() - began


def median_of(times: int, work: Callable[[], object]) -> float:
    """The median seconds of several runs."""
    return sorted(timed(work)[1] for _ in range(times))[times // 2]


@dataclass
class PeakMemory:
    """The most that each kind of process held at once, in bytes: this one, the JVM, Spark's Python workers."""

    driver: int = 0
    jvm: int = 0
    workers: int = 0

    def sample(self, driver: psutil.Process) -> None:
        """Look at the processes as they are now; one that ends meanwhile counts nothing."""
        jvm = workers = 0
        with suppress(psutil.NoSuchProcess):
            self.driver = max(self.driver, driver.memory_info().rss)
            for child in driver.children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    name, resident = child.name(), child.memory_info().rss
                    jvm += resident if name == "java" else 0
                    workers += resident if name.startswith("python") else 0
        self.jvm, self.workers = max(self.jvm, jvm), max(self.workers, workers)


@contextmanager
def peak_memory(pid: int | None = None) -> Iterator[PeakMemory]:
    """Samples this process and those below it, or those of ``pid``, ten times a second while the block lasts."""
    peak, stop, driver = PeakMemory(), threading.Event(), psutil.Process(pid)

    def watch() -> None:
        while not stop.wait(_SAMPLE_SECONDS):
            peak.sample(driver)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        stop.set()
        thread.join()


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Deleted at the end."""
    folder = Path(tempfile.mkdtemp(prefix="postgres-cdc-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
