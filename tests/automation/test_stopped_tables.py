"""What the runs hand on about stopped tables, and when it is a table's turn."""

from __future__ import annotations

import pytest

from cdc_assets.automation.run_planning import seconds_to_wait
from cdc_assets.stopped_tables import STOPPED_TAG, StoppedTable, StoppedTables


def test_runs_hand_on_what_they_know() -> None:
    first = StoppedTables().after("run 1", {"a", "b", "c"}, {"a", "b"}, 1000.5)
    assert StoppedTables.of_run(first.tags) == first
    assert first.tables == (StoppedTable("a", 1000, 1000, 1), StoppedTable("b", 1000, 1000, 1))
    # the planner hands it to the next run, which leaves b out, and tries a again
    handed = StoppedTables.of_run(first.tags).followed({"a", "b", "c"})
    assert (handed.tables, handed.by) == (first.tables, "")
    second = handed.after("run 2", {"a", "c"}, {"a", "c"}, 2000)
    assert set(second.tables) == {
        StoppedTable("b", 1000, 1000, 1),
        StoppedTable("a", 1000, 2000, 2),
        StoppedTable("c", 2000, 2000, 1),
    }
    assert second.by == "run 2"
    healed = second.followed({"a", "b"}).after("run 3", {"a", "b"}, (), 3000)
    assert healed == StoppedTables((), "run 3")
    assert StoppedTables.of_run(healed.tags) == healed


def test_a_run_without_stopped_tables_has_no_tag() -> None:
    assert StoppedTables().tags == {}
    assert StoppedTables.of_run({}) == StoppedTables()
    assert set(StoppedTables().after("run", {"a"}, {"a"}, 1).tags) == {STOPPED_TAG}


def test_it_says_since_when() -> None:
    table = StoppedTable('public."odd, name"', 1_700_000_000, 1_700_000_300, 4)
    assert str(table) == 'public."odd, name" is stopped since 2023-11-14 22:13:20 UTC (tried 4 times)'


@pytest.mark.parametrize(
    ("failures", "since_last", "wait"),
    [(0, 0, 0), (1, 0, 30), (1, 31, 0), (2, 10, 50), (4, 0, 240), (5, 0, 300), (5000, 0, 300), (5000, 301, 0)],
)
def test_what_fails_is_left_alone_ever_longer(failures: int, since_last: float, wait: float) -> None:
    assert seconds_to_wait(failures, since_last) == wait
