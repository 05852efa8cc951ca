"""What a tick asks for fits the log, whatever keys there are; and tick by tick everything is caught up."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.automation.range_planning import PartitionState, RangePlan, plan_range
from cdc_assets.partitions import markers_in, uncovered
from spark_jobs.capture.windows import fit_windows, plan_windows
from spark_jobs.change_log.window_marker import SlotIdentity, WindowMarker
from spark_jobs.configuration import WindowLimits
from spark_jobs.logicalrep.lsn import Lsn, Window

LIMITS = WindowLimits(max_bytes=100, max_per_run=3)
BEYOND = "FF0000/0-FF0000/100"


def window(lo: int, hi: int) -> Window:
    return Window(Lsn(lo), Lsn(hi))


def key(lo: int, hi: int) -> str:
    return window(lo, hi).key


def key_of_digits(lo: int, hi: int) -> str:
    """As the first releases spelled it."""
    return f"{lo:016X}-{hi:016X}"


def tick(
    keys: Sequence[str], landed_end: int, flushed: int, taken: int = 0, *, begin: int = 0, again: bool = False
) -> RangePlan:
    state = PartitionState(keys, Lsn(begin), Lsn(landed_end), Lsn(flushed), Lsn(taken))
    planned = plan_windows(Lsn(landed_end), Lsn(landed_end), Lsn(flushed), LIMITS)
    return plan_range(state, planned, LIMITS.max_per_run, again=again)


def asked(plan: RangePlan) -> list[tuple[int, int]]:
    return [(int(each.lo), int(each.hi)) for each in plan.windows]


def test_a_key_beyond_the_wal_is_left_out() -> None:
    keys = [key(0, 100), BEYOND, "nonsense"]
    plan = tick(keys, 100, 150, taken=100)
    assert asked(plan) == [(100, 150)]
    assert plan.new_keys == (key(100, 150),)
    left_out = PartitionState(keys, Lsn(0), Lsn(100), Lsn(150), Lsn(100)).left_out()
    assert left_out == f"2 partitions skipped, no LSN windows or beyond the WAL at 0/96: '{BEYOND}', 'nonsense'"
    assert PartitionState(keys[:1], Lsn(0), Lsn(100), Lsn(150), Lsn(100)).left_out() == ""


def test_a_key_that_is_no_neighbour_is_not_in_the_range() -> None:
    """Dagster's range is a slice: what lies between its ends runs too."""
    assert asked(tick([key(0, 50), BEYOND, key(50, 80)], 0, 80)) == [(0, 50)]
    assert asked(tick([key(0, 50), key(50, 80), BEYOND], 0, 80)) == [(0, 50), (50, 80)]
    assert asked(tick([key(0, 50), "nonsense"], 0, 80)) == [(0, 50)]


def test_keys_of_the_first_releases_are_understood_and_called_as_they_are() -> None:
    keys = [key_of_digits(0, 50), key_of_digits(50, 80)]
    plan = tick(keys, 0, 100)
    assert [each.key for each in plan.windows] == [*keys, "0/50-0/64"]
    assert plan.new_keys == ("0/50-0/64",)
    assert asked(tick([*keys, *plan.new_keys], 100, 100, taken=100)) == []


def test_a_partition_deleted_before_it_was_landed_is_added_again() -> None:
    keys = [key(0, 50), key(80, 100)]
    plan = tick(keys, 50, 100, taken=100)
    assert (asked(plan), plan.new_keys) == ([(50, 80)], (key(50, 80),))
    # added at the end of Dagster's order, so what follows on it is a range of its own
    keys += plan.new_keys
    assert asked(tick(keys, 80, 100, taken=80)) == [(80, 100)]


def test_landed_partitions_may_be_deleted() -> None:
    assert asked(tick([key(100, 150)], 150, 150, taken=150)) == []
    assert asked(tick([], 150, 150, taken=150)) == []
    assert asked(tick([], 150, 170, taken=150)) == [(150, 170)]
    # and while the newest waits
    state = PartitionState([key(100, 200)], Lsn(0), Lsn(150), Lsn(200), Lsn(200))
    assert state.keyed_end == 150


def test_keys_of_an_earlier_lake_with_higher_lsns() -> None:
    old = [key(1000, 1100), key(1100, 1200)]
    plan = tick(old, 40, 60, taken=1200)
    assert (asked(plan), plan.new_keys) == ([(40, 60)], (key(40, 60),))
    # the new WAL reaches the old keys: they follow on the log, with what is between
    assert asked(tick(old, 900, 1150, taken=1200)) == [(900, 1000)]
    assert asked(tick(old, 1000, 1200, taken=1000)) == [(1000, 1100), (1100, 1200)]


def test_keys_of_an_earlier_chapter_are_in_no_range() -> None:
    """The slot was lost at 100, while [100, 200) was requested; the next chapter begins at 250."""
    old = [key(0, 100), key(100, 200), key(200, 260)]
    for taken in (0, 100, 200, 260):
        plan = tick(old, 250, 300, taken, begin=250)
        assert (asked(plan), plan.new_keys) == ([(250, 300)], (key(250, 300),))
        assert not tick([*old, *plan.new_keys], 300, 300, max(taken, 300), begin=250).windows
    assert asked(tick(old, 250, 250, taken=200, begin=250, again=True)) == []
    # they were used once, or are removed: a tick does not name them
    assert PartitionState(old, Lsn(250), Lsn(250), Lsn(300), Lsn(200)).left_out() == ""


def test_a_key_before_the_log_is_in_no_range() -> None:
    assert asked(tick([key(0, 50), key(0, 120)], 100, 150, begin=100)) == [(100, 150)]


def test_the_newest_is_run_again_after_a_failure_only() -> None:
    keys = [key(0, 50), key(50, 100)]
    assert asked(tick(keys, 100, 100, taken=100, again=True)) == [(50, 100)]
    assert asked(tick(keys, 100, 100, taken=100)) == []


def test_windows_that_the_command_landed_are_marked_and_do_not_count() -> None:
    keys = [key(i * 10, i * 10 + 10) for i in range(10)]
    plan = tick(keys, 100, 1000, taken=20)
    assert asked(plan)[0] == (20, 30)
    assert sum(lo >= 100 for lo, _ in asked(plan)) == LIMITS.max_per_run


@pytest.mark.parametrize(
    ("windows", "known", "parts"),
    [
        ([window(0, 10)], [], [window(0, 10)]),
        ([window(0, 10), window(5, 20)], [], [window(0, 10), window(10, 20)]),
        ([window(0, 30)], [window(10, 20)], [window(0, 10), window(20, 30)]),
        ([window(0, 30)], [window(0, 40)], []),
        ([window(0, 10), window(10, 20)], [window(5, 15), window(12, 30)], [window(0, 5)]),
    ],
)
def test_uncovered(windows: list[Window], known: list[Window], parts: list[Window]) -> None:
    assert list(uncovered(windows, known, Lsn(0))) == parts


def test_a_landed_window_counts_in_one_partition() -> None:
    """The command may land what spans several keys, or several windows within one."""
    identity = SlotIdentity(1, 1, "shop", "shop", "pgoutput", (), 180000)
    landed = [window(0, 0), window(0, 25), window(25, 27), window(27, 40)]
    markers = [WindowMarker(ordinal, each, identity) for ordinal, each in enumerate(landed)]
    counted = {key(*each): [m.ordinal for m in markers_in(window(*each), markers)] for each in ((0, 20), (20, 40))}
    assert counted == {key(0, 20): [], key(20, 40): [1, 2, 3]}


WINDOWS = st.builds(
    lambda spelled, lo, size: spelled(lo, lo + size),
    st.sampled_from([key, key_of_digits]),
    st.integers(0, 900),
    st.integers(1, 400),
)
KEYS = st.lists(WINDOWS | st.sampled_from([BEYOND, "nonsense"]), unique=True, max_size=12)


@given(
    keys=KEYS,
    begin=st.integers(0, 500),
    landed=st.integers(0, 500),
    wal=st.integers(1, 800),
    taken=st.integers(0, 1200),
)
def test_any_keys_are_caught_up_range_by_range(keys: list[str], begin: int, landed: int, wal: int, taken: int) -> None:
    landed_end = begin + landed
    flushed = landed_end + wal
    for _ in range(40):
        plan = tick(keys, landed_end, flushed, taken, begin=begin)
        if not plan.windows:
            break
        keys += plan.new_keys
        # as Dagster has it: everything between the first key and the last, in the order of adding
        first, last = keys.index(plan.windows[0].key), keys.index(plan.windows[-1].key)
        run = [Window.parse(each) for each in keys[first : last + 1]]
        assert tuple(run) == plan.windows
        assert all(each.lo >= begin for each in run)
        # raises when one does not follow on the log, or ends beyond the WAL
        fitted = fit_windows(run, Lsn(landed_end), Lsn(landed_end), Lsn(flushed))
        landed_end = max([landed_end, *(int(each.hi) for each in fitted)])
        taken = int(run[-1].hi)
    assert landed_end == flushed
    assert not tick(keys, landed_end, flushed, taken, begin=begin).windows
