"""What a stream plans between two offsets, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from cdc_assets import ChangesSource
from spark_jobs.capture.capture import capture
from spark_jobs.capture.chapter import begin_chapter
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import GapError
from spark_jobs.logged_changes.changes import changes
from spark_jobs.logged_changes.readers import ChangesStream
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.qualified_name import QualifiedName
from tests.fixtures.pipelines import pipeline_of, prepare_slot
from tests.fixtures.servers import Database
from tests.spark.audit import Row

pytestmark = pytest.mark.postgres


@pytest.fixture
def logged(database: Database, tmp_path: Path) -> Pipeline:
    database.execute("CREATE TABLE item (id int PRIMARY KEY)")
    pipeline = pipeline_of(database, tmp_path / "lake", "public.item")
    prepare_slot(pipeline)
    for n in range(3):
        land(pipeline, database, n)
    return pipeline


def land(pipeline: Pipeline, database: Database, number: int) -> None:
    """One window with two transactions."""
    database.execute(f"INSERT INTO item VALUES ({10 * number})", f"INSERT INTO item VALUES ({10 * number + 1})")
    capture(pipeline)


def stream_of(pipeline: Pipeline, **options: str) -> ChangesStream:
    source = ChangesSource({"path": pipeline.lake.path, "table": "item", **options})
    return source.streamReader(from_arrow_schema(changes(pipeline, "item").schema))


def rows(stream: ChangesStream, start: dict[str, Any], end: dict[str, Any]) -> list[Row]:
    planned = stream.partitions(start, end)
    return [row for each in planned for batch in stream.read(each) for row in batch.to_pylist()]


def test_offsets_tile(database: Database, logged: Pipeline) -> None:
    stream = stream_of(logged)
    start = stream.initialOffset()
    end = stream.latestOffset()
    first = rows(stream, start, end)
    assert rows(stream, end, end) == []
    land(logged, database, 3)
    again = stream_of(logged)  # as after a crash: the batch is planned anew, when more has landed
    assert rows(again, start, end) == first
    later = rows(again, end, again.latestOffset())
    assert [row["after"]["id"] for row in first + later] == [0, 1, 10, 11, 20, 21, 30, 31]


def test_a_stream_begins_at_a_point(logged: Pipeline) -> None:
    lsn = Lsn(changes(logged, "item").read_all().column("_commit_lsn")[3].as_py())
    stream = stream_of(logged, **{"from": str(lsn)})
    assert [row["after"]["id"] for row in rows(stream, stream.initialOffset(), stream.latestOffset())] == [11, 20, 21]
    end = ChangeLog(logged.lake.change_log).markers()[-1].window.hi
    stream = stream_of(logged, **{"from": str(end)})
    assert stream.initialOffset() == stream.latestOffset()


def test_a_break_ends_a_stream_and_divides_ranges(database: Database, logged: Pipeline) -> None:
    start = stream_of(logged).initialOffset()
    before = stream_of(logged).latestOffset()
    database.execute("SELECT pg_drop_replication_slot(current_database())", "INSERT INTO item VALUES (99)")
    log = ChangeLog(logged.lake.change_log)
    last = log.checkpoint()
    assert last is not None
    begin_chapter(logged, [QualifiedName("public", "item")], after=last, what="the slot is gone")
    land(logged, database, 3)
    stream = stream_of(logged)
    for begin in (start, before):
        with pytest.raises(
            GapError, match=r"the stream of public\.item ends at .*the slot is gone.*read the table itself"
        ):
            rows(stream, begin, stream.latestOffset())
    assert [row["after"]["id"] for row in rows(stream, stream.initialOffset(), stream.latestOffset())] == [30, 31]
    assert [row["after"]["id"] for row in changes(logged, "item").read_all().to_pylist()] == [30, 31]
    earlier = log.markers()[0].window.lo, Lsn.parse(before["lsn"])
    assert changes(logged, "item", *earlier).read_all().num_rows == 6
    with pytest.raises(GapError, match="is not in the change log"):
        changes(logged, "item", earlier[0])


def test_windows_that_are_gone_end_a_stream(logged: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = stream_of(logged)
    start, end = stream.initialOffset(), stream.latestOffset()
    markers = ChangeLog.markers
    monkeypatch.setattr(ChangeLog, "markers", lambda log, after=-1: markers(log, max(after, 1)))
    with pytest.raises(GapError, match=r"no longer holds window 1: it begins at"):
        rows(stream, start, end)
