"""``postgres-cdc sync`` in a process of its own, as from cron: its time and memory are the product's alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.measurement import PeakMemory, peak_memory, timed


def sync_alone(configuration: Path, *, may_start_jvm: bool = True) -> tuple[float, PeakMemory]:
    """Its seconds, and what it and the processes below it held at their peaks. Raises AssertionError if it fails, or
    starts a JVM though it may not."""
    command = [sys.executable, "-m", "cdc_assets.cli", "sync", "--config", str(configuration)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        with peak_memory(process.pid) as peak:
            _, seconds = timed(process.wait)
        if process.returncode:
            raise AssertionError(f"sync of {configuration.stem} ended with {process.returncode}")
    if peak.jvm and not may_start_jvm:
        raise AssertionError(f"sync of {configuration.stem} started a JVM")
    return seconds, peak
