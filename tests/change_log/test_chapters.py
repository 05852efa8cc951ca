"""What a log holds of each chapter, what was lost between two, and what retention may hide. No server."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from cdc_assets.partitions import no_longer_landed
from spark_jobs.change_log.chapters import Chapters, chapters_of
from spark_jobs.change_log.log import ChangeLog, marker_row
from spark_jobs.change_log.window_marker import ChapterBreak, WindowMarker
from spark_jobs.logicalrep.lsn import Lsn, Window
from tests.change_log.identity import IDENTITY

BEGAN = "2026-05-04T03:02:01+00:00"

MakeLog = Callable[..., ChangeLog]


def window(lo: int, hi: int) -> Window:
    return Window(Lsn(lo), Lsn(hi))


@pytest.fixture
def make_log(tmp_path: Path) -> MakeLog:
    """A log of chapters, each given by the ends of its windows; the first of them is where it begins."""

    def make(*chapters: tuple[int, ...]) -> ChangeLog:
        log = ChangeLog(str(tmp_path / "change_log"))
        log.create()
        last: WindowMarker | None = None
        for ends in chapters:
            ordinal = last.ordinal + 1 if last else 0
            broke = ChapterBreak("slot shop is gone", BEGAN, last.identity, int(last.window.hi)) if last else None
            identity = IDENTITY.following(last.identity, chapter=ordinal) if last else IDENTITY
            last = WindowMarker(ordinal, window(ends[0], ends[0]), identity, broke=broke)
            log.land(identity, ordinal, [marker_row(last)])
            for end in ends[1:]:
                last = WindowMarker(last.ordinal + 1, window(int(last.window.hi), end), identity)
                log.land(identity, last.ordinal, [marker_row(last)])
        return log

    return make


def of(log: ChangeLog) -> Chapters:
    chapters = chapters_of(log)
    assert chapters is not None
    return chapters


def forget(log: ChangeLog, before: int) -> None:
    """Retention removes the windows before this ordinal."""
    DeltaTable(log.path).delete(f"window < {before}")
    first = log.first_window()
    assert first is not None
    assert first.ordinal == before


def test_a_log_that_never_broke(make_log: MakeLog) -> None:
    assert chapters_of(ChangeLog("nowhere/change_log")) is None
    chapters = of(make_log((10, 50, 100)))
    assert [chapter.landed for chapter in chapters.all] == [window(10, 100)]
    assert (chapters.present.is_whole, chapters.present.began) == (True, None)
    assert [chapters.hold(window(*each)) for each in ((10, 30), (10, 100), (0, 20), (90, 101))] == [
        True,
        True,
        False,
        False,
    ]
    # what begins before the log was never landed; what begins in it may be
    assert [chapters.lost(window(*each)) for each in ((0, 20), (0, 5), (90, 110), (100, 200))] == [
        True,
        True,
        False,
        False,
    ]
    assert chapters.is_of_earlier(window(0, 20))


def test_windows_of_a_gap_are_lost(make_log: MakeLog) -> None:
    chapters = of(make_log((0, 50, 100), (250, 300), (400, 420, 450)))
    assert [chapter.landed for chapter in chapters.all] == [window(0, 100), window(250, 300), window(400, 450)]
    noticed = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
    assert chapters.present.began == noticed
    before = noticed - timedelta(seconds=1)
    assert (chapters.begun_after(before), chapters.begun_after(noticed)) == (chapters.all[1], None)
    lost = [(100, 200), (90, 120), (200, 260), (300, 400), (310, 320), (390, 410), (0, 450)]
    assert [chapters.lost(window(*each)) for each in lost] == [True] * len(lost)
    kept = [(0, 50), (20, 100), (250, 300), (400, 420), (420, 480), (450, 500), (1000, 1100)]
    assert [chapters.lost(window(*each)) for each in kept] == [False] * len(kept)
    assert [chapters.is_of_earlier(window(*each)) for each in ((0, 50), (390, 410), (400, 500))] == [True, True, False]


def test_another_cluster_begins_lower(make_log: MakeLog) -> None:
    chapters = of(make_log((1000, 1100, 1200), (40, 60)))
    assert chapters.present.landed == window(40, 60)
    assert chapters.hold(window(1000, 1100))
    assert not chapters.hold(window(60, 80))
    # planned for the first cluster, never landed: the second may come to these LSNs
    assert not chapters.lost(window(1200, 1300))
    assert not chapters.is_of_earlier(window(1000, 1100))


def test_the_first_cluster_comes_back(make_log: MakeLog) -> None:
    chapters = of(make_log((1000, 1100, 1200), (40, 60), (1300, 1400)))
    assert [chapters.lost(window(*each)) for each in ((1200, 1300), (60, 80), (1150, 1250))] == [True] * 3
    assert [chapters.lost(window(*each)) for each in ((1000, 1100), (40, 60), (1300, 1500))] == [False] * 3


def test_what_retention_removed_was_landed(make_log: MakeLog) -> None:
    log = make_log((0, 50, 100), (250, 300, 350))
    # the ordinals: 0: [0, 0), 1: [0, 50), 2: [50, 100), 3: [250, 250), 4: [250, 300), 5: [300, 350)
    forget(log, 2)
    chapters = of(log)
    assert [chapter.landed for chapter in chapters.all] == [window(50, 100), window(250, 350)]
    assert not chapters.lost(window(0, 50))
    assert not chapters.lost(window(20, 60))
    assert chapters.lost(window(100, 200))
    forget(log, 3)  # the break is still there, and what it left
    chapters = of(log)
    assert [chapter.landed for chapter in chapters.all] == [window(250, 350)]
    assert not chapters.lost(window(50, 100))
    assert [chapters.lost(window(*each)) for each in ((90, 120), (100, 200), (200, 260))] == [True] * 3
    assert chapters.is_of_earlier(window(50, 100))
    forget(log, 5)  # nothing tells any more what was before
    chapters = of(log)
    assert [chapter.landed for chapter in chapters.all] == [window(300, 350)]
    assert (chapters.present.is_whole, chapters.present.began) == (False, None)
    assert not chapters.lost(window(100, 200))
    assert not chapters.is_of_earlier(window(250, 300))


def test_partitions_of_removed_windows_go_and_no_others(make_log: MakeLog) -> None:
    log = make_log((1000, 1100, 1200), (40, 60, 80, 100))
    keys = [window(*each).key for each in ((1000, 1100), (1100, 1200), (1200, 1300), (40, 60), (60, 80), (80, 120))]
    marked = {*keys[:2], *keys[3:5]}
    assert no_longer_landed([*keys, "nonsense"], marked, of(log)) == []
    # by LSNs alone the second chapter would seem to be older than the first
    forget(log, 2)
    assert no_longer_landed(keys, marked, of(log)) == [window(1000, 1100)]
    forget(log, 5)
    assert no_longer_landed(keys, marked, of(log)) == [window(1000, 1100), window(1100, 1200), window(40, 60)]
