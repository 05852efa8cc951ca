"""A large table's first snapshot, killed at random under load: what it reads twice, and how long the server serves it.

Run: python -m benchmarks.killed_snapshot --jars FOLDER [--rows 20000000] [--kills 10]. A PostgreSQL of its own, with
the benchmarks' table and a session that changes it all the time; at the end source and lake are compared.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import yaml

from benchmarks.measurement import temporary_folder
from benchmarks.workload import MIXED, make_table
from cdc_assets.configuration.load_pipeline import load_pipeline
from cdc_assets.demo.embedded_postgres import PostgresServer, running_postgres, wheel_binaries
from spark_jobs.snapshot.chunks.read_record import ReadRecord

_DSN_VARIABLE = "POSTGRES_CDC_KILLED_DSN"
_READS = "SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'mixed'"
_AGE = """SELECT coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)), 0)::float8 FROM pg_stat_activity
WHERE backend_type = 'client backend' AND application_name <> 'load' AND pid <> pg_backend_pid()"""


def _configured(folder: Path, arguments: argparse.Namespace) -> Path:
    options = {"chunk": arguments.chunk, "rate_limit": arguments.rate_limit, "parallel": 1}
    attributes = {
        "name": "killed",
        "source": {"dsn": "{{ env." + _DSN_VARIABLE + " }}"},
        "lake": {"path": str(folder / "lake")},
        "tables": [str(MIXED)],
        "spark": {"jars": arguments.jars},
        "merge": {"engine": "auto"},
        "snapshot": {name: value for name, value in options.items() if value},
    }
    file = folder / "killed.yaml"
    file.write_text(yaml.safe_dump({"type": "cdc_assets.PostgresCdcComponent", "attributes": attributes}))
    return file


@contextmanager
def _in_background(
    server: PostgresServer, step: Callable[[psycopg.Connection[tuple[float]]], object]
) -> Iterator[None]:
    ended = threading.Event()

    def work() -> None:
        with psycopg.connect(server.dsn(), autocommit=True, application_name="load") as connection:
            while not ended.wait(0.05):
                step(connection)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _killed(file: Path, record: ReadRecord, share: float, chance: random.Random) -> bool:
    """Kill a sync at random, when a further ``share`` of the chunks is read. False if there were no further ones."""
    process = subprocess.Popen([sys.executable, "-m", "cdc_assets.cli", "sync", "--config", str(file)])
    plan = record.plan()
    left = len(record.unread(plan)) if plan is not None else 0
    while process.poll() is None:
        plan = plan or record.plan()
        if plan is not None:
            left = left or len(plan.chunks)
            if len(record.unread(plan)) <= left - share * len(plan.chunks):
                time.sleep(chance.random() / 4)
                process.kill()
                return process.wait() != 0
        time.sleep(0.02)
    return False


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.killed_snapshot", description=__doc__)
    parser.add_argument("--jars", default="packages", help="Delta's jars: packages, provided or a folder")
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--chunk", default="32MiB", help="snapshot.chunk")
    parser.add_argument("--rate-limit", help="snapshot.rate_limit")
    return parser.parse_args()


def main() -> None:
    arguments, chance, ages = _arguments(), random.Random(5), [0.0]  # noqa: S311
    binaries = wheel_binaries(18)
    if binaries is None:
        sys.exit("the benchmark needs PostgreSQL 18: pip install 'dagster-postgres-cdc[demo]'")

    def change(connection: psycopg.Connection[tuple[float]]) -> None:
        first = chance.randint(1, arguments.rows)
        connection.execute(f"UPDATE mixed SET n = n + 1 WHERE id BETWEEN {first} AND {first + 20}")
        connection.execute(f"DELETE FROM mixed WHERE id = {first + 30}")

    def look(connection: psycopg.Connection[tuple[float]]) -> None:
        ages.append(connection.execute(_AGE).fetchall()[0][0])

    with temporary_folder() as folder, temporary_folder() as data, running_postgres(data, binaries=binaries) as server:
        os.environ[_DSN_VARIABLE] = server.dsn()
        file = _configured(folder, arguments)
        make_table(server, MIXED, arguments.rows)
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            before = connection.execute(_READS).fetchall()[0][0]
            record = ReadRecord(load_pipeline(file).lake, MIXED)
            began = time.monotonic()
            with _in_background(server, change), _in_background(server, look):
                kills, chunks = 0, 0
                for _ in range(arguments.kills):
                    kills += _killed(file, record, 1 / (arguments.kills + 1), chance)
                    if (plan := record.plan()) is not None:  # or the last chunk was read before it was killed
                        chunks = len(plan.chunks)
                _run("sync", file)
            seconds = time.monotonic() - began
            _run("sync", file)
            time.sleep(2)  # until ended sessions have reported what they read
            again = connection.execute(_READS).fetchall()[0][0] - before - arguments.rows
        print(f"{arguments.rows:,} rows in {chunks} chunks, killed {kills} times: {seconds:.0f} s")
        print(
            f"rows read twice: {again:,}, {again / max(1, kills) / (arguments.rows / max(1, chunks)):.2f} chunks a kill"
        )
        print(f"longest transaction: {max(ages):.1f} s")
        _run("verify", file)


def _run(name: str, file: Path) -> None:
    subprocess.run([sys.executable, "-m", "cdc_assets.cli", name, "--config", str(file)], check=True)


if __name__ == "__main__":
    main()
