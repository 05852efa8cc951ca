"""What one command costs in a process of its own, as from cron: Python and, where Spark writes, its JVM start anew."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import psycopg

from benchmarks.measurement import Measurement, timed
from benchmarks.workload import make_table
from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.configuration import MergeEngine
from spark_jobs.qualified_name import QualifiedName

_CHANGES = 10
_ROWS = 1000
_REPEATS = 3
# commands with Spark that are not measured: the second of them makes the archive of Spark's classes
_WARM_UP = 2
_NOTHING_AT_MOST = 1.0
_AT_MOST: tuple[tuple[MergeEngine, float], ...] = (("auto", 3.0), ("spark", 10.0))


class _ConfigurationOf(Protocol):
    """Writes the file of a pipeline of that name over those tables."""

    def __call__(self, name: str, tables: tuple[QualifiedName, ...], *, engine: MergeEngine) -> Path: ...


def measure_cold(server: PostgresServer, configuration_of: _ConfigurationOf) -> Iterator[Measurement]:
    """The median of three commands each; the commands before them have written the bytecode, and the archive."""
    for engine, at_most in _AT_MOST:
        table = QualifiedName("public", f"cold_{engine}")
        make_table(server, table, _ROWS)
        configuration = configuration_of(table.relname, (table,), engine=engine)
        _updates("sync", configuration)
        warm_up = _WARM_UP if engine == "spark" else 0
        turns = [_turn(server, table, configuration, turn) for turn in range(warm_up + _REPEATS)][warm_up:]
        written, idle, status = (sorted(seconds)[_REPEATS // 2] for seconds in zip(*turns, strict=True))
        stage = f"cold: sync of {_CHANGES} changes, {engine}"
        yield Measurement(stage, written, _CHANGES, at_most=at_most)
        if engine == "auto":  # without changes the engine does not matter
            yield Measurement("cold: sync with nothing to do", idle, at_most=_NOTHING_AT_MOST)
            yield Measurement("cold: status", status, at_most=_NOTHING_AT_MOST)


def _turn(server: PostgresServer, table: QualifiedName, configuration: Path, turn: int) -> tuple[float, float, float]:
    """The seconds of a sync of ten changes, of another right after it, and of ``status``."""
    with psycopg.connect(server.dsn()) as connection:
        connection.execute(f"UPDATE {table} SET n = n + 1 WHERE id % {_ROWS // _CHANGES} = {turn}")
    brought, written = timed(lambda: _updates("sync", configuration))
    further, idle = timed(lambda: _updates("sync", configuration))
    if (brought, further) != (_CHANGES, 0):
        raise AssertionError(f"the syncs brought {brought} and {further} changes")
    return written, idle, timed(lambda: _updates("status", configuration))[1]


def _updates(command: str, configuration: Path) -> int:
    """Run it as a process of its own; how many updates it has applied."""
    # with the bytecode that it compiles at its first start, whatever this process was told
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    call = [sys.executable, "-m", "cdc_assets.cli", command, "--config", str(configuration), "--json"]
    done = subprocess.run(call, stdout=subprocess.PIPE, check=True, env=environ)
    return sum(table.get("updates", 0) for table in json.loads(done.stdout)["tables"])
