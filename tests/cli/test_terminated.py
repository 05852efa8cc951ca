"""A command that is told to end, as by a service manager, while it reads a table: it says nothing but that."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.at_night import at_night
from tests.cli.command import configured
from tests.fixtures.servers import Database

pytestmark = [pytest.mark.slow, pytest.mark.postgres]

_PATIENCE_SECONDS = 60
_ROWS = 400_000


@pytest.mark.parametrize("told", [signal.SIGTERM, at_night(signal.SIGINT)])
def test_in_the_middle_of_a_snapshot(database: Database, tmp_path: Path, told: signal.Signals) -> None:
    database.execute(
        "CREATE TABLE wide (id int PRIMARY KEY, v text)",
        f"INSERT INTO wide SELECT g, repeat(md5(g::text), 30) FROM generate_series(1, {_ROWS}) g",
    )
    command = configured(tmp_path, database.dsn, database.name, ["public.wide"])
    call = [sys.executable, "-m", "cdc_assets.cli", "sync", "--config", str(command.configuration)]
    environment = {**os.environ, **command.environment}
    with subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as process:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not any(file.stat().st_size for file in (tmp_path / "lake" / "tables").rglob("*.parquet")):
            assert process.poll() is None
            assert time.monotonic() < deadline, "the table is not read"
        process.send_signal(told)
        _, said = process.communicate(timeout=_PATIENCE_SECONDS)
    assert process.returncode == 128 + told
    assert said.splitlines() == (
        ["", "postgres-cdc: interrupted", "hint: run it again to continue from where it stopped"]
        if told == signal.SIGINT
        else []
    )
    assert command("sync", without_java=True).exit_code == 0
    assert DeltaTable(str(tmp_path / "lake/tables/public/wide")).count() == _ROWS
