"""The command is killed while it reads a large table, under load: nothing is read twice but what was being read."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.at_night import at_night
from tests.cli.command import PROGRAM, Command, configured
from tests.fixtures.background import endless, in_background
from tests.fixtures.forked_programs import start_program
from tests.fixtures.servers import Database
from tests.fixtures.waiting import wait_until
from tests.snapshot.large_table import ROWS, LargeTable, changes, created

pytestmark = [pytest.mark.postgres, pytest.mark.slow]


def change(connection: psycopg.Connection[Any], chance: random.Random) -> None:
    with connection.transaction():
        for statement in changes(chance):
            connection.execute(statement)


def killed(command: Command, large: LargeTable, chunks: int) -> None:
    """Kill a sync when so many further chunks are read."""
    before = len(large.chunks_read)
    environment = {**os.environ, **command.environment}
    arguments = ("sync", "--config", str(command.configuration))
    with command.configuration.with_suffix(".log").open("w") as log:
        process = start_program(PROGRAM, *arguments, environment=environment, stdout=log, stderr=log)
    wait_until(lambda: len(large.chunks_read) >= before + chunks or process.poll() is not None)
    assert process.returncode is None, "it was done before it could be killed"
    process.kill()
    process.wait(60)


def rows_scanned(database: Database) -> int:
    """By scans of ranges of blocks; those of ended sessions are counted a moment later."""
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        wait_until(
            lambda: (
                not connection.execute(
                    "SELECT pid FROM pg_stat_activity WHERE query LIKE '/* chunk%' AND pid <> pg_backend_pid()"
                ).fetchall()
            )
        )
        connection.execute("SELECT pg_stat_force_next_flush()")
        ((rows,),) = connection.execute("SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'big'")
    return int(rows)


@pytest.mark.parametrize("kills", [2, at_night(10)])
def test_killed_under_load(database: Database, tmp_path: Path, kills: int) -> None:
    large = LargeTable.at(created(database), tmp_path / "lake")
    options = {"chunk": "256KiB", "parallel": 1, "rate_limit": "1MiB"}
    command = configured(tmp_path, database.dsn, database.name, ["public.big"], snapshot=options)
    with in_background(endless(change, database, seed=5), pause=0.05):
        for _ in range(kills):
            killed(command, large, 1)
        under = command("sync")
    assert under.exit_code == 0, under.stderr
    assert command("sync").exit_code == 0
    large.assert_equal()


def test_rows_are_read_once(database: Database, tmp_path: Path) -> None:
    """But for those of the chunk that was being read."""
    options = {"chunk": "256KiB", "parallel": 1, "rate_limit": "1MiB"}
    command = configured(tmp_path, database.dsn, database.name, ["public.big"], snapshot=options)
    large = LargeTable.at(created(database), tmp_path / "lake")
    before = rows_scanned(database)
    killed(command, large, 2)
    killed(command, large, 1)
    chunk = ROWS // len(large.plan["chunks"]) + 1
    (status,) = command("status", "--json").document["tables"]
    progress, chunks = status["snapshot_progress"], len(large.plan["chunks"])
    assert (progress["chunks_read"], progress["chunks"]) == (len(large.chunks_read), chunks)
    # one is read in a quarter of a second; each process takes a while to start
    assert 0.2 < progress["seconds_left"] / (chunks - len(large.chunks_read)) < 60
    assert command("sync").exit_code == 0
    assert ROWS <= rows_scanned(database) - before <= ROWS + 2 * 2 * chunk
    large.assert_equal()
