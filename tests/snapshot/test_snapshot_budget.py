"""Automatic snapshots have a budget of time: cheap ones are never put off, expensive ones do not go on and on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from spark_jobs.lake.table_state import SnapshotCause
from spark_jobs.snapshot.snapshot_budget import next_snapshot_at, spent_of

NOW = datetime.now(UTC)
HOUR = 3600.0


def taken_in_a_row(seconds: float, number: int) -> SnapshotCause:
    """The last of ``number`` snapshots, each begun when the one before had ended; the last one ends now."""
    last: SnapshotCause | None = None
    for left in range(number, 0, -1):
        at = NOW - timedelta(seconds=seconds * left)
        last = SnapshotCause("altered", at, spent_of(last, at), seconds)
    assert last is not None
    return last


def test_without_one_before_the_first_is_taken_at_once() -> None:
    assert next_snapshot_at(None) is None


def test_a_table_of_three_rows_is_read_after_each_change() -> None:
    assert next_snapshot_at(taken_in_a_row(0.1, 1000)) is None


def test_a_table_that_takes_an_hour_is_read_twice_and_then_uses_a_quarter_of_the_time() -> None:
    assert next_snapshot_at(taken_in_a_row(HOUR, 1)) is None
    last = taken_in_a_row(HOUR, 2)
    due = next_snapshot_at(last)
    assert due is not None
    assert due - NOW == timedelta(hours=4)
    # one that is taken as soon as it is due has the next one due four hours after its end
    again = SnapshotCause("altered", due, spent_of(last, due), HOUR)
    following = next_snapshot_at(again)
    assert following is not None
    assert following - due == timedelta(hours=1 + 4)


def test_quiet_time_is_regained() -> None:
    last = taken_in_a_row(HOUR, 2)
    assert spent_of(last, NOW) == 2 * HOUR
    assert spent_of(last, NOW + timedelta(hours=4)) == pytest.approx(HOUR)
    assert spent_of(last, NOW + timedelta(hours=100)) == 0


def test_no_pause_is_longer_than_a_day() -> None:
    due = next_snapshot_at(taken_in_a_row(100 * HOUR, 1))
    assert due is not None
    assert due - NOW == timedelta(hours=24)


def test_a_cause_of_an_older_version_has_used_up_nothing() -> None:
    assert next_snapshot_at(SnapshotCause("altered", NOW)) is None
