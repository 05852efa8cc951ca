"""Which windows a range of LSNs means, and the errors where the log does not hold it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import SecretStr

from spark_jobs.change_log.log import ChangeLog, marker_row
from spark_jobs.change_log.window_marker import ChapterBreak, WindowMarker
from spark_jobs.configuration import Lake, Pipeline, Source
from spark_jobs.errors import ConfigurationError, GapError
from spark_jobs.lake.generation import Generation
from spark_jobs.lake.table_state import TableState
from spark_jobs.logicalrep.lsn import Lsn, Window
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.replay.landed_windows import LandedWindows
from tests.change_log.identity import IDENTITY
from tests.change_log.timed_log import NOON, log_of, rows_of


def landed(first: int, last: int) -> LandedWindows:
    """Window n is [100 n, 100 n + 100); number 0 is the log's beginning, empty."""
    markers = [WindowMarker(n, Window(Lsn(100 * n), Lsn(100 * n + 100)), IDENTITY) for n in range(first, last + 1)]
    if first == 0:
        markers[0] = WindowMarker(0, Window(Lsn(100), Lsn(100)), IDENTITY)
    return LandedWindows(Lake("/lake"), tuple(markers))


def ordinals(windows: tuple[WindowMarker, ...]) -> list[int]:
    return [marker.ordinal for marker in windows]


@pytest.mark.parametrize(
    ("lo", "hi", "expected"),
    [(100, 600, [1, 2, 3, 4, 5]), (200, 300, [2]), (250, 301, [2, 3]), (299, 300, [2]), (100, 101, [1])],
)
def test_a_range_is_whole_windows(lo: int, hi: int, expected: list[int]) -> None:
    assert ordinals(landed(0, 5).between(Lsn(lo), Lsn(hi))) == expected


def test_a_range_that_the_log_does_not_hold_is_refused() -> None:
    whole, pruned = landed(0, 5), landed(3, 5)
    with pytest.raises(GapError, match="LSN 0/63 is not in the change log /lake/change_log: it begins at 0/64"):
        whole.between(Lsn(99), Lsn(300))
    with pytest.raises(GapError, match="it ends at 0/258: `postgres-cdc capture` lands"):
        whole.between(Lsn(200), Lsn(601))
    with pytest.raises(GapError, match="it no longer reaches further back, and begins at 0/12C"):
        pruned.between(Lsn(200), Lsn(500))
    for lo in (300, 301):
        with pytest.raises(ConfigurationError, match="the range of LSNs is empty"):
            whole.between(Lsn(lo), Lsn(300))


def test_a_missing_window_after_a_table_is_an_error() -> None:
    pruned = landed(3, 5)
    assert ordinals(pruned.after(2, 4)) == [3, 4]
    assert pruned.after(5, 5) == ()
    with pytest.raises(GapError, match="no longer holds windows 2 to 5: it begins with window 3, at 0/12C"):
        pruned.after(1, 5)


def test_windows_of_an_earlier_chapter_are_not_in_it(tmp_path: Path) -> None:
    log = ChangeLog(Lake(str(tmp_path)).change_log)
    log.create()
    begun = replace(IDENTITY, chapter=2, timeline=2)
    for ordinal, lo, hi, identity in (
        (0, 500, 500, IDENTITY),
        (1, 500, 900, IDENTITY),
        (2, 50, 50, begun),
        (3, 50, 90, begun),
    ):
        assert log.land(identity, ordinal, [marker_row(WindowMarker(ordinal, Window(Lsn(lo), Lsn(hi)), identity))])
    windows = LandedWindows.of(
        Pipeline("shop", Source(SecretStr("dbname=shop"), "sl", "shop"), Lake(str(tmp_path)), tables=())
    )
    assert ordinals(windows.markers) == [2, 3]
    with pytest.raises(GapError, match="it begins at 0/32"):
        windows.between(Lsn(40), Lsn(90))


def test_the_lsn_that_a_table_shows_is_its_snapshots_or_its_last_windows_end() -> None:
    def state(snapshot_lsn: int, ordinal: int) -> TableState:
        return TableState(QualifiedName("public", "t"), Generation(Lsn(snapshot_lsn)), ordinal, 1)

    windows = landed(0, 5)
    assert windows.shown_by(state(130, 1)) == 200
    assert windows.shown_by(state(250, 1)) == 250
    assert landed(3, 5).shown_by(state(130, 2)) == 300
    assert [windows.last_until(Lsn(lsn)) for lsn in (99, 100, 199, 200, 600)] == [-1, 0, 0, 1, 5]


def test_a_time_before_the_log_began_has_no_lsn(tmp_path: Path) -> None:
    log = log_of(tmp_path, range(3))
    Path(log.path).rename(tmp_path / "change_log")
    (windows,) = LandedWindows.of_each_chapter(Lake(str(tmp_path)))
    assert windows.lsn_of(NOON) == Lsn(120)
    with pytest.raises(GapError, match="began at 2026-11-22T12:00:00"):
        windows.lsn_of(NOON - timedelta(seconds=1))


def test_a_time_after_the_last_commit_is_the_end_of_a_log_that_was_there(tmp_path: Path) -> None:
    log = log_of(tmp_path, range(1))
    Path(log.path).rename(tmp_path / "change_log")
    (windows,) = LandedWindows.of_each_chapter(Lake(str(tmp_path)))
    assert windows.begin_of(NOON) == windows.end
    with pytest.raises(GapError, match="began at 2026-11-22T12:00:00") as raised:
        windows.begin_of(NOON - timedelta(seconds=1))
    assert raised.value.hint == "choose a later time"
    with pytest.raises(GapError, match="holds no transaction that committed after"):
        windows.lsn_of(NOON)


def test_a_time_before_the_first_window_was_landed_may_be_in_the_log(tmp_path: Path) -> None:
    """It begins where the slot was then, which may have existed for long, or have been kept through a break."""
    log = log_of(tmp_path, range(3), begun=NOON + timedelta(seconds=60))
    Path(log.path).rename(tmp_path / "change_log")
    lake = Lake(str(tmp_path))
    (windows,) = LandedWindows.of_each_chapter(lake)
    assert windows.lsn_of(NOON) == Lsn(120)
    with pytest.raises(GapError, match="began at 2026-11-22T12:01:00"):
        windows.lsn_of(NOON - timedelta(seconds=1))

    broke = ChapterBreak("moved", (NOON + timedelta(seconds=200)).isoformat(), IDENTITY, 300)
    begun, log = replace(IDENTITY, chapter=3), ChangeLog(lake.change_log)
    assert log.land(begun, 3, [marker_row(WindowMarker(3, Window(Lsn(500), Lsn(500)), begun, broke=broke))])
    rows = rows_of(4, ((510, 130), (520, 140)))
    assert log.land(begun, 4, [*rows, marker_row(WindowMarker(4, Window(Lsn(500), Lsn(600)), begun))])
    _, windows = LandedWindows.of_each_chapter(lake)
    assert windows.lsn_of(NOON + timedelta(seconds=130)) == Lsn(520)
    with pytest.raises(GapError, match="began at 2026-11-22T12:03:20"):
        windows.lsn_of(NOON + timedelta(seconds=129))
    with pytest.raises(GapError, match="lies before the break"):
        windows.lsn_of(NOON)
