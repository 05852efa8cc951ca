"""How late the log is: nothing waits, something was written since the last landing, a backlog is worked off."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from spark_jobs.capture.capture import capture
from spark_jobs.capture.lag import Lag, lag_behind
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.configuration import WindowLimits
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.prepare import prepare
from tests.fixtures.pipelines import MakePipeline
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres


def test_seconds_behind(database: Database, make_pipeline: MakePipeline) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    pipeline = replace(make_pipeline("public.t"), windows=WindowLimits(max_bytes=1 << 20))
    prepare(pipeline)
    database.execute("INSERT INTO t VALUES (1)")
    committed = datetime.now(UTC)
    time.sleep(1.5)
    capture(pipeline)
    log = ChangeLog(pipeline.lake.change_log)
    landed, landed_at = log.checkpoint(), log.landed_at()
    assert landed is not None
    assert landed_at is not None
    end = landed.window.hi

    assert lag_behind(pipeline, landed, end) == Lag(0, 0.0), "however long ago that was"
    since_landing = lag_behind(pipeline, landed, Lsn(end + 100))
    since_commit = lag_behind(pipeline, landed, Lsn(end + (1 << 20) + 1))
    now = datetime.now(UTC)
    assert since_landing.bytes == 100
    assert 0 <= since_landing.seconds <= (now - landed_at).total_seconds()
    assert since_commit.seconds >= since_landing.seconds + 1.0
    assert since_commit.seconds == pytest.approx((now - committed).total_seconds(), abs=1.0)
