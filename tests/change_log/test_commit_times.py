"""From a time to an LSN and back, in a log whose commits are not in the order of their clocks."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest

from spark_jobs.change_log.commit_times import LoggedCommit, first_commit_after, last_commit_time
from spark_jobs.change_log.log import marker_row
from spark_jobs.change_log.schema import CHANGE_LOG_SCHEMA
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.errors import GapError
from spark_jobs.logicalrep.lsn import Lsn, Window
from tests.change_log.identity import IDENTITY
from tests.change_log.timed_log import NOON, log_of


def test_a_time_ends_before_the_first_commit_after_it(tmp_path: Path) -> None:
    log = log_of(tmp_path, range(10))
    found = [first_commit_after(log, NOON + timedelta(seconds=seconds)) for seconds in (-1, 0, 8, 9, 19, 20)]
    commits = [(1, 110), (1, 120), (1, 120), (2, 220), (2, 220)]
    assert found == [*(LoggedCommit(window, Lsn(lsn)) for window, lsn in commits), None]
    east = (NOON + timedelta(seconds=9)).astimezone(timezone(timedelta(hours=9)))
    assert first_commit_after(log, east) == LoggedCommit(2, Lsn(220))


def test_a_later_chapter_may_have_lower_lsns(tmp_path: Path) -> None:
    log = log_of(tmp_path, range(3))
    begun = replace(IDENTITY, chapter=3, timeline=2)
    assert log.land(begun, 3, [marker_row(WindowMarker(3, Window(Lsn(50), Lsn(50)), begun))])
    row = {"window": 4, "commit_lsn": 60, "ordinal": 0, "kind": "I", "relid": 1, "data": b"I"}
    batch = pa.RecordBatch.from_pylist([{**row, "commit_time": NOON + timedelta(seconds=30)}], schema=CHANGE_LOG_SCHEMA)
    assert log.land(begun, 4, [batch, marker_row(WindowMarker(4, Window(Lsn(50), Lsn(150)), begun))])
    assert first_commit_after(log, NOON + timedelta(seconds=8)) == LoggedCommit(1, Lsn(120))
    assert first_commit_after(log, NOON + timedelta(seconds=20)) == LoggedCommit(4, Lsn(60))
    assert last_commit_time(log, 4) == NOON + timedelta(seconds=30)


def test_the_time_of_a_window_is_that_of_the_last_commit_before_its_end(tmp_path: Path) -> None:
    log = log_of(tmp_path, range(10))
    seconds = {0: None, 1: 9, 2: 20, 3: 20, 9: 20}
    for ordinal, after in seconds.items():
        assert last_commit_time(log, ordinal) == (None if after is None else NOON + timedelta(seconds=after))


def test_a_time_before_what_the_log_still_holds_is_refused(tmp_path: Path) -> None:
    log = log_of(tmp_path, range(2, 4))
    with pytest.raises(GapError, match="no longer reaches back to 2026-11-22T12:00:00"):
        first_commit_after(log, NOON)
    with pytest.raises(GapError, match="begins at 0/C8"):
        first_commit_after(log, NOON + timedelta(seconds=10))
    assert first_commit_after(log, NOON + timedelta(seconds=20)) is None


def test_windows_without_commits_do_not_hide_that_earlier_ones_are_gone(tmp_path: Path) -> None:
    """What was removed was landed before them, and committed before that."""
    log, later = log_of(tmp_path, range(3, 6)), datetime.now(UTC) + timedelta(minutes=1)
    assert first_commit_after(log, later) is None
    with pytest.raises(GapError, match="no longer reaches back to 2001-01-01T00:00:00"):
        first_commit_after(log, datetime(2001, 1, 1, tzinfo=UTC))
    commit = {"window": 6, "commit_lsn": 610, "ordinal": 0, "kind": "I", "relid": 1, "data": b"I"}
    at = later + timedelta(seconds=1)
    batch = pa.RecordBatch.from_pylist([{**commit, "commit_time": at}], schema=CHANGE_LOG_SCHEMA)
    assert log.land(IDENTITY, 6, [batch, marker_row(WindowMarker(6, Window(Lsn(600), Lsn(700)), IDENTITY))])
    assert first_commit_after(log, later) == LoggedCommit(6, Lsn(610))
    with pytest.raises(GapError, match="no longer reaches back to 2001-01-01T00:00:00"):
        first_commit_after(log, datetime(2001, 1, 1, tzinfo=UTC))
