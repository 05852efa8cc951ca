"""A sync that is killed at any of its requests to an S3 server: the next one ends with exit code 0, and all rows are
equal to the source's."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

import pytest

from spark_jobs.configuration import MergeEngine
from tests.at_night import at_night
from tests.cli.command import PROGRAM, Answer, Command
from tests.fixtures.forked_programs import start_program
from tests.fixtures.s3_server import S3Server
from tests.fixtures.servers import Database
from tests.fixtures.store_proxy import Fault, Request, StoreProxy, through
from tests.spark.s3_pipelines import on_s3

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.timeout(3600)]

KILLS = 24
# what the engine auto writes without a JVM, and what needs one
WITHOUT_JVM = ["public.item"]
WITH_JVM = ["public.part", "public.note", {"name": "public.version", "mode": "history"}]
TABLES = (
    "CREATE TABLE item (id int PRIMARY KEY, n int, v text)",
    "INSERT INTO item SELECT g, 0, repeat('v', 20) FROM generate_series(1, 200) g",
    "CREATE TABLE part (id int PRIMARY KEY, n int)",
    "INSERT INTO part SELECT g, 0 FROM generate_series(1, 20) g",
    "CREATE TABLE note (a int, b text)",
    "ALTER TABLE note REPLICA IDENTITY FULL",
    "INSERT INTO note SELECT g % 10, 'x' FROM generate_series(1, 20) g",
    "CREATE TABLE version (id int PRIMARY KEY, n int)",
    "INSERT INTO version SELECT g, 0 FROM generate_series(1, 20) g",
)


def changes(number: int) -> tuple[str, ...]:
    """Of every kind: rows, DDL, a TRUNCATE, rows without a key, and of a table with history."""
    return (
        f"UPDATE item SET n = n + 1 WHERE id % 7 = {number % 7}",
        f"DELETE FROM item WHERE id = {number}",
        f"INSERT INTO item VALUES ({1000 + number}, 0, 'new')",
        f"ALTER TABLE version ADD c{number} int DEFAULT {number}",
        f"UPDATE version SET n = {number} WHERE id % 2 = 0",
        "TRUNCATE part",
        f"INSERT INTO part SELECT g, {number} FROM generate_series(1, 20) g",
        "DELETE FROM note WHERE ctid = (SELECT min(ctid) FROM note)",
        f"INSERT INTO note VALUES ({number}, 'y'), ({number}, 'y')",
    )


def _assert_done(answer: Answer, where: str) -> None:
    assert answer.exit_code == 0, f"{where}: {answer.stderr}"
    assert "defect" not in answer.stderr, f"{where}: {answer.stderr}"


def _killed(command: Command, proxy: StoreProxy, at: int) -> str:
    """A sync whose process group, JVM and all, is killed at this request; which it was. Of every second one the store
    does what it was asked."""
    killed_at: list[str] = []
    with tempfile.TemporaryFile("w+") as printed:
        environment = {**os.environ, **command.environment}
        arguments = ("sync", "--config", str(command.configuration))

        def kill(request: Request) -> Fault | None:
            if request.number < at:
                return None
            if not killed_at:
                killed_at.append(f"{request.method} {request.path}")
                os.killpg(process.pid, signal.SIGKILL)
            return "lost" if at % 2 else "dropped"

        with proxy.under(kill):
            process = start_program(PROGRAM, *arguments, stdout=printed, stderr=printed, environment=environment)
            exit_code = process.wait(300)
        printed.seek(0)
        assert exit_code == -signal.SIGKILL, printed.read()
    return f"killed at request {at}, {killed_at[0]}"


@pytest.mark.parametrize(
    ("engine", "tables", "kills"),
    [
        ("auto", WITHOUT_JVM, 1),
        at_night("auto", WITHOUT_JVM, KILLS),
        at_night("auto", WITHOUT_JVM + WITH_JVM, KILLS),
        at_night("spark", WITHOUT_JVM + WITH_JVM, KILLS),
    ],
)
def test_killed_at_any_request(
    database: Database,
    s3_server: S3Server,
    store_proxy: StoreProxy,
    tmp_path: Path,
    engine: MergeEngine,
    tables: list[str | dict[str, str]],
    kills: int,
) -> None:
    command = on_s3(tmp_path, database, through(store_proxy, s3_server), tables, engine)
    database.execute(*TABLES)
    _assert_done(command("sync"), "snapshots")
    database.execute(*changes(0))
    with store_proxy.under() as requests:
        _assert_done(command("sync"), "not killed")
    for number in range(1, kills + 1):
        database.execute(*changes(number))
        where = _killed(command, store_proxy, len(requests) * number // (kills + 1))
        _assert_done(command("sync"), where)
        _assert_done(command("verify"), where)
