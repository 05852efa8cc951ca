"""While ``sync`` applies windows, it captures the next ones."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark_jobs import sync as of_sync
from spark_jobs.apply.apply import apply
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.configuration import Pipeline, WindowLimits
from spark_jobs.errors import LakeError
from spark_jobs.verify.verify import verify
from tests.fixtures.no_spark import no_spark, synced_without_spark
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres


@pytest.fixture
def pipeline(database: Database, tmp_path: Path) -> Pipeline:
    """With a backlog of several rounds of one window each."""
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, n int)", "INSERT INTO t SELECT g, 0 FROM generate_series(1, 500) g"
    )
    pipeline = replace(pipeline_of(database, tmp_path / "lake", "public.t"), merge_engine="auto")
    synced_without_spark(pipeline)
    database.execute(*(f"UPDATE t SET n = {n}" for n in range(4)))
    return replace(pipeline, windows=WindowLimits(max_bytes=64 << 10, max_per_run=1))


def ordinal(pipeline: Pipeline) -> int:
    marker = ChangeLog(pipeline.lake.change_log).checkpoint()
    assert marker is not None
    return marker.ordinal


def test_the_next_window_is_landed_before_the_last_is_applied(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = [ordinal(pipeline)]

    def late(*arguments: Any, uncaptured: int, **others: Any) -> Any:
        rounds.append(rounds[-1] + 1)
        until = time.monotonic() + 60
        while uncaptured and ordinal(pipeline) <= rounds[-1]:
            assert time.monotonic() < until, "no further window is landed"
            time.sleep(0.01)
        return apply(*arguments, uncaptured=uncaptured, **others)

    monkeypatch.setattr(of_sync, "apply", late)
    synced_without_spark(pipeline)
    assert len(rounds) > 3
    (compared,) = verify(pipeline, no_spark).tables
    assert compared.problem is None


def test_an_error_while_windows_are_captured(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing goes on behind it, and the next sync has all of it."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise LakeError("it is full")

    with monkeypatch.context() as patched:
        patched.setattr(of_sync, "apply", refuse)
        with pytest.raises(LakeError, match="it is full"):
            of_sync.sync(pipeline, no_spark)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("capture")]
    synced_without_spark(pipeline)
    (compared,) = verify(pipeline, no_spark).tables
    assert compared.problem is None
