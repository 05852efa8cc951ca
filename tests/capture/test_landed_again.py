"""A slot that fell behind the log is moved up, however differently the server now sends the window that was landed.
What it cannot stream is read whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.capture.capture import capture, land_window
from spark_jobs.capture.session import capture_session
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.configuration import Pipeline
from spark_jobs.logicalrep.lsn import Window
from spark_jobs.postgres.flushed_wal import flushed_lsn
from spark_jobs.prepare import prepare
from spark_jobs.verify.verify import verify
from tests.fixtures.no_spark import no_spark, synced_without_spark
from tests.fixtures.pipelines import MakePipeline, pipeline_of
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres

_ROWS = 2000


def landed_and_not_advanced(pipeline: Pipeline) -> None:
    """As after a crash between the two."""
    with capture_session(pipeline) as session:
        window = Window(session.checkpoint.window.hi, flushed_lsn(session.control))
        land_window(session, window)


@pytest.mark.parametrize("streamed_first", [True, False])
def test_streamed_in_one_read_and_whole_in_the_other(
    database: Database, make_pipeline: MakePipeline, streamed_first: bool
) -> None:
    """Found by the fault campaign: after a crash a transaction was streamed that had come whole, its partitions were
    described five times less, and each run from then on took the server for another one."""
    database.execute(
        "CREATE TABLE item (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
        f"CREATE TABLE item_low PARTITION OF item FOR VALUES FROM (0) TO ({_ROWS // 2})",
        f"CREATE TABLE item_high PARTITION OF item FOR VALUES FROM ({_ROWS // 2}) TO ({_ROWS})",
    )
    # the server streams what does not fit into its memory
    small = f"{database.dsn} options='-c logical_decoding_work_mem=64kB'"
    whole, streamed = (make_pipeline("public.item", dsn=dsn, streaming="on") for dsn in (None, small))
    prepare(whole)
    database.execute(f"INSERT INTO item SELECT g, repeat('x', 500) FROM generate_series(0, {_ROWS - 1}) g")
    landed_and_not_advanced(streamed if streamed_first else whole)
    assert capture(whole if streamed_first else streamed).caught_up
    assert ChangeLog(whole.lake.change_log).markers()[1].changes == _ROWS


def not_streamed(database: Database) -> None:
    """DDL that is rolled back to a savepoint, and the table's changes after it: the server refuses to stream them."""
    rows = "INSERT INTO item SELECT g, repeat('x', 100) FROM generate_series({}, {}) g"
    transaction = (
        "SAVEPOINT s",
        "ALTER TABLE item ADD x int DEFAULT 5",
        rows.format(1, _ROWS),
        "ROLLBACK TO s",
        rows.format(1, _ROWS),
        "ALTER TABLE item ADD y int",
        "SAVEPOINT e",
        "ALTER TABLE item DROP y",
        rows.format(_ROWS + 1, 2 * _ROWS),
        "RELEASE e",
    )
    database.execute("; ".join(["BEGIN", *transaction, "COMMIT"]))


def test_what_the_server_cannot_stream(
    every_database: Database, make_pipeline: MakePipeline, caplog: pytest.LogCaptureFixture
) -> None:
    database = every_database
    database.execute("CREATE TABLE item (id int PRIMARY KEY, v text)")
    pipeline = make_pipeline(
        "public.item", dsn=f"{database.dsn} options='-c logical_decoding_work_mem=64kB'", streaming="on"
    )
    prepare(pipeline)
    not_streamed(database)
    assert capture(pipeline).caught_up
    landed = [marker for marker in ChangeLog(pipeline.lake.change_log).markers() if marker.changes]
    assert sum(marker.changes for marker in landed) == 2 * _ROWS
    assert ["streaming" in dict(marker.identity.options) for marker in landed] == [False]
    assert "; reading it again without streaming" in caplog.text


def test_a_truncate_beside_what_the_server_cannot_stream(every_database: Database, tmp_path: Path) -> None:
    """Only its stream tells that a TRUNCATE behind a savepoint has given the table another file. Without it, whatever
    ``streaming`` is, the table is read again, if its publication allows that file to hold other rows."""
    database = every_database
    database.execute(
        "CREATE TABLE item (id int PRIMARY KEY, v text)",
        "CREATE TABLE other (id int PRIMARY KEY)",
        f"CREATE PUBLICATION {database.name} FOR ALL TABLES",
    )
    pipeline = pipeline_of(database, tmp_path / "lake", "public.item", "public.other")
    synced_without_spark(pipeline)
    database.execute("INSERT INTO other VALUES (1)")
    synced_without_spark(pipeline)
    not_streamed(database)
    database.execute("BEGIN; SAVEPOINT t; TRUNCATE other; INSERT INTO other VALUES (2); RELEASE t; COMMIT")
    report = synced_without_spark(pipeline)
    assert "public.other" in {str(taken.name) for taken in report.snapshots}
    assert verify(pipeline, no_spark).problems == ()
