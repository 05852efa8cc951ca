"""Peak memory of ``postgres-cdc capture`` for a transaction of 0.9 units and of 9 units: it must not grow with it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.measurement import Measurement
from benchmarks.workload import Size, make_table, one_transaction
from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.qualified_name import QualifiedName

_KIB_PER_MIB = 1024  # ru_maxrss is in KiB on Linux


def measure_capture_memory(
    server: PostgresServer, configuration_of: Callable[[str, tuple[QualifiedName, ...]], Path], size: Size
) -> Iterator[Measurement]:
    """``configuration_of`` writes the file of a pipeline of that name over those tables."""
    for count in (9 * size.unit // 10, 9 * size.unit):
        table = QualifiedName("public", f"one_transaction_{count}")
        make_table(server, table, 0)
        configuration = configuration_of(table.relname, (table,))
        _capture(configuration)
        one_transaction(server, table, count)
        peak = _capture(configuration)
        yield Measurement(f"capture, one transaction of {count:,}: peak memory", count=count, mebibytes=peak)


def _capture(configuration: Path) -> float:
    """Run it as a process of its own; its peak resident memory in MiB."""
    command = [sys.executable, "-m", "cdc_assets.cli", "capture", "--config", str(configuration)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise AssertionError(f"capture ended with {process.returncode}")
    return usage.ru_maxrss / _KIB_PER_MIB
