"""PostgreSQL's own benchmark program as a load: https://www.postgresql.org/docs/current/pgbench.html."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from cdc_assets.demo.embedded_postgres import PostgresServer

_STOP_SECONDS = 30


def initialise(server: PostgresServer, database: str, scale: int) -> None:
    """``pgbench -i``: four tables, 100,000 accounts per unit of ``scale``. Raises RuntimeError with its last line."""
    command = [str(server.binaries / "pgbench"), "--initialize", "--quiet", f"--scale={scale}", database]
    answer = subprocess.run(command, env=server.environment(), capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise RuntimeError(f"pgbench could not create its tables: {answer.stderr.strip().splitlines()[-1]}")


@contextmanager
def running_pgbench(server: PostgresServer, database: str, *, rate: int) -> Iterator[None]:
    """Run its built-in transaction, ``rate`` times a second in all, for as long as the block lasts."""
    options = ["--no-vacuum", "--client=2", f"--rate={rate}", "--time=86400", "--random-seed=1"]
    process = subprocess.Popen(
        [str(server.binaries / "pgbench"), *options, database],
        env=server.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield
        if process.poll() is not None:
            errors = process.stderr.read() if process.stderr else ""
            raise RuntimeError(f"pgbench ended early: {errors.strip().splitlines()[-1:]}")
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=_STOP_SECONDS)
