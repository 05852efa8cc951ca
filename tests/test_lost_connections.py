"""Sessions that PostgreSQL ends, and servers that go: what can be done again is done again, the rest is an error."""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
from deltalake import DeltaTable
from pydantic import SecretStr

from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.capture.capture import capture, capture_windows
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.configuration import Pipeline, WindowLimits
from spark_jobs.errors import SourceBusyError, SourceError, SourceUnreachableError
from spark_jobs.logicalrep.lsn import Window
from spark_jobs.postgres.connection import Connection, connected, source_errors
from spark_jobs.postgres.flushed_wal import flushed_lsn
from spark_jobs.postgres.refusals import connect_hint
from spark_jobs.progress import Step
from spark_jobs.retries import again_when_lost
from tests.fixtures.pipelines import MakePipeline, pipeline_of, prepare_slot
from tests.fixtures.servers import Database, started

pytestmark = pytest.mark.postgres

SECRET = "cell-4711"
ROWS = f"INSERT INTO item SELECT g, '{SECRET} ' || repeat('x', 1000) FROM generate_series({{}}, {{}}) g"
OURS = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'postgres-cdc' AND {}"


def prepared(database: Database, make_pipeline: MakePipeline, **source: object) -> Pipeline:
    database.execute("CREATE TABLE item (id int PRIMARY KEY, v text)")
    pipeline = make_pipeline("public.item", **source)
    prepare_slot(pipeline)
    return pipeline


def once(strike: Callable[[], object]) -> Callable[[Step], None]:
    """As progress: strikes when messages of the first window have come."""
    struck: list[Step] = []

    def progress(step: Step, /) -> None:
        if not struck and re.search(r", [1-9][\d,]* messages", step.detail):
            struck.append(step)
            strike()

    return progress


def landed(pipeline: Pipeline) -> list[Window]:
    return [marker.window for marker in ChangeLog(pipeline.lake.change_log).markers()]


ALL, BULK, CONTROL = "true", "query LIKE 'COPY%'", "query NOT LIKE 'COPY%'"


@pytest.mark.parametrize(
    ("plugin", "whose"),
    [
        pytest.param("pgoutput", ALL, id="pgoutput-all"),
        pytest.param("pgoutput", BULK, id="pgoutput-bulk"),
        pytest.param("pgoutput", CONTROL, id="pgoutput-control"),
        pytest.param("test_decoding", ALL, id="test_decoding-all"),
        # their reader of the slot is the same
        pytest.param("test_decoding", BULK, id="test_decoding-bulk", marks=pytest.mark.nightly),
        pytest.param("test_decoding", CONTROL, id="test_decoding-control", marks=pytest.mark.nightly),
    ],
)
def test_sessions_ended_in_mid_window_are_opened_again(
    database: Database, make_pipeline: MakePipeline, caplog: pytest.LogCaptureFixture, plugin: str, whose: str
) -> None:
    pipeline = prepared(database, make_pipeline, plugin=plugin)
    database.execute(ROWS.format(1, 30_000), ROWS.format(30_001, 60_000))
    with caplog.at_level(logging.WARNING):
        report = capture(pipeline, progress=once(lambda: database.execute(OURS.format(whose))))
    assert report.caught_up
    told = [record.getMessage() for record in caplog.records if "trying again" in record.getMessage()]
    assert told, caplog.text
    assert all("the connection to PostgreSQL was lost (" in line and "\n" not in line for line in told)
    assert_no_secret(caplog.text, database)
    # none is missing, none is twice
    assert inserts(pipeline) == 60_000
    windows = landed(pipeline)
    assert [window.lo for window in windows[1:]] == [window.hi for window in windows[:-1]]


def inserts(pipeline: Pipeline) -> int:
    kinds = DeltaTable(pipeline.lake.change_log).to_pyarrow_table(columns=["kind"]).column("kind")
    return sum(kind == "I" for kind in kinds.to_pylist())


def test_the_windows_landed_before_the_loss_are_reported(database: Database, make_pipeline: MakePipeline) -> None:
    pipeline = prepared(database, make_pipeline)
    database.execute(*(ROWS.format(n * 1000, n * 1000 + 999) for n in range(10)))
    small = WindowLimits(max_bytes=1_200_000, max_per_run=4)
    pipeline = Pipeline(pipeline.name, pipeline.source, pipeline.lake, small, tables=pipeline.tables)
    ended: list[Step] = []

    def progress(step: Step, /) -> None:
        if step.done == 2 and not ended:
            ended.append(step)
            database.execute(OURS.format("true"))

    report = capture(pipeline, progress=progress)
    assert ended
    assert [marker.ordinal for marker in report.landed] == [1, 2, 3, 4]


def test_asked_for_windows_survive_a_loss_too(database: Database, make_pipeline: MakePipeline) -> None:
    pipeline = prepared(database, make_pipeline)
    start = landed(pipeline)[-1].hi
    database.execute(ROWS.format(1, 30_000))
    with connected(pipeline.source.dsn) as connection:
        window = Window(start, flushed_lsn(connection))
    report = capture_windows(pipeline, [window], progress=once(lambda: database.execute(OURS.format("true"))))
    assert [marker.window for marker in report.landed] == [window]


@pytest.mark.parametrize(
    "said",
    [
        "FATAL:  the database system is not yet accepting connections",
        "FATAL:  the database system is in recovery mode",
        "server closed the connection unexpectedly",
    ],
)
def test_a_server_that_recovers_is_not_taken_for_a_wrong_password(said: str) -> None:
    assert connect_hint(said).startswith("run it again when the server answers")


def test_a_server_that_is_gone_for_good_is_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with started(18) as server:
        Database(server, "postgres").execute("CREATE DATABASE gone")
        database = Database(server, "gone")
        database.execute("CREATE TABLE item (id int PRIMARY KEY, v text)")
        pipeline = pipeline_of(database, tmp_path / "lake", "public.item")
        prepare_slot(pipeline)
        database.execute(ROWS.format(1, 60_000))
        begun = time.monotonic()
        with pytest.raises(SourceUnreachableError) as gone, caplog.at_level(logging.WARNING):
            capture(pipeline, progress=once(lambda: stop(server)))
        assert time.monotonic() - begun < 60
    assert str(gone.value).startswith("cannot connect to PostgreSQL: ")
    assert "refused" in str(gone.value)
    assert str(gone.value).endswith(
        "check host, port, user and password in source.dsn, and that pg_hba.conf lets the role in"
    )
    assert "the connection to PostgreSQL was lost (" in caplog.text
    assert_no_secret(f"{gone.value}{caplog.text}", database)


def stop(server: PostgresServer) -> None:
    postmaster = int((server.data / "postmaster.pid").read_text().splitlines()[0])
    os.kill(postmaster, signal.SIGQUIT)
    with suppress(psycopg.OperationalError):
        while True:
            psycopg.connect(server.dsn()).close()


def test_a_server_that_never_answered_is_told_of_at_once(database: Database, make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline("public.item", dsn=f"{database.dsn} port=1")
    begun = time.monotonic()
    with pytest.raises(SourceUnreachableError):
        capture_from(pipeline)
    assert time.monotonic() - begun < 3


@again_when_lost
def capture_from(pipeline: Pipeline) -> None:
    with connected(pipeline.source.dsn):
        raise AssertionError("connected")


def test_a_server_without_a_connection_to_spare_is_asked_again(database: Database, make_pipeline: MakePipeline) -> None:
    database.execute(
        f"CREATE ROLE single_{database.name} LOGIN PASSWORD 'x' CONNECTION LIMIT 1",
    )
    dsn = database.server.dsn(database.name, user=f"single_{database.name}", password="x")
    try:
        with connected(SecretStr(dsn)), pytest.raises(SourceBusyError) as busy, connected(SecretStr(dsn)):
            pass
        assert "too many connections for role" in str(busy.value)
        with psycopg.connect(dsn) as holder:
            threading.Timer(0.5, holder.close).start()
            with connected(SecretStr(dsn)) as connection:
                assert flushed_lsn(connection)
    finally:
        database.execute(f"DROP ROLE single_{database.name}")


def test_who_ended_a_statement_is_told(database: Database) -> None:
    """Of an administrator's cancel, our own limits, and the server's temp_file_limit."""
    role = f"limited_{database.name}"
    database.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'", f"ALTER ROLE {role} SET temp_file_limit = '64kB'")
    dsn = SecretStr(database.server.dsn(database.name, user=role, password="x"))
    cancel = f"SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'"
    try:
        with connected(dsn) as connection:
            threading.Timer(0.5, lambda: database.execute(cancel)).start()
            assert_told(connection, "SELECT pg_sleep(5)", "user request", "it was cancelled on the server")
            connection.execute("SET statement_timeout = '100ms'")
            assert_told(connection, "SELECT pg_sleep(5)", "statement timeout", "our own statement_timeout expired")
            connection.execute("SET statement_timeout = 0; SET work_mem = '64kB'")
            sort = "SELECT count(*) FROM (SELECT g FROM generate_series(1, 100000) g ORDER BY -g) s"
            assert_told(connection, sort, "temp_file_limit", "the server's own temp_file_limit was exceeded")
            with database.connect() as other:
                other.execute("SELECT pg_advisory_lock(4711)")
                connection.execute("SET lock_timeout = '100ms'")
                assert_told(connection, "SELECT pg_advisory_lock(4711)", "lock timeout", "our own lock_timeout expired")
    finally:
        database.execute(f"DROP ROLE {role}")


def assert_told(connection: Connection, statement: str, *words: str) -> None:
    with pytest.raises(SourceError) as told, source_errors("the work stopped"):
        connection.execute(statement)
    assert str(told.value).startswith("the work stopped: ")
    assert all(word in str(told.value) for word in words), str(told.value)


def assert_no_secret(text: str, database: Database) -> None:
    assert SECRET not in text
    assert database.server.password not in text
    assert database.dsn not in text
