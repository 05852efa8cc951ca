"""The planner: windows tile, never skip, never overlap."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.capture.windows import fit_windows, plan_windows, windows_of_one_call
from spark_jobs.configuration import WindowLimits
from spark_jobs.errors import ConfigurationError, GapError
from spark_jobs.logicalrep.lsn import Lsn, Window

lsns = st.integers(0, 10_000).map(Lsn)


@given(lsns, st.integers(0, 10_000), st.integers(0, 10_000), st.integers(1, 3_000), st.integers(1, 5))
def test_planned_windows_tile_from_the_log_to_the_wal(
    landed_end: Lsn, behind: int, ahead: int, max_bytes: int, max_per_run: int
) -> None:
    slot = Lsn(max(0, landed_end - behind))
    flushed = Lsn(landed_end + ahead)
    windows = plan_windows(landed_end, slot, flushed, WindowLimits(max_bytes, max_per_run))
    assert [w.lo for w in windows] == [landed_end, *(w.hi for w in windows)][: len(windows)]
    assert all(0 < w.size <= max_bytes for w in windows)
    assert len(windows) == min(max_per_run, -(-ahead // max_bytes))
    if len(windows) < max_per_run:
        assert (windows[-1].hi if windows else landed_end) == flushed


def test_slot_ahead_of_the_log_is_a_gap_that_names_both() -> None:
    with pytest.raises(GapError, match=r"slot stands at 0/80, ahead of the change log, which ends at 0/40.*: "):
        plan_windows(Lsn(0x40), Lsn(0x80), Lsn(0x100), WindowLimits())


def test_wal_that_ends_before_the_log_is_a_gap() -> None:
    with pytest.raises(GapError, match=r"WAL ends at 0/30, before the change log, which ends at 0/40"):
        plan_windows(Lsn(0x40), Lsn(0x20), Lsn(0x30), WindowLimits())


@given(st.lists(st.tuples(lsns, lsns).map(lambda p: Window(min(p), max(p))), max_size=6), lsns)
def test_fitted_windows_tile_or_raise(requested: list[Window], landed_end: Lsn) -> None:
    try:
        fitted = fit_windows(requested, landed_end, landed_end, Lsn(20_000))
    except GapError:
        covered = set(range(landed_end)) | {lsn for w in requested for lsn in range(w.lo, w.hi)}
        assert covered != set(range(max(covered, default=-1) + 1))
        return
    assert [w.lo for w in fitted] == [landed_end, *(w.hi for w in fitted)][: len(fitted)]
    assert (fitted[-1].hi if fitted else landed_end) == max([landed_end, *(w.hi for w in requested if w.size)])


def test_window_beyond_the_wal_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="WAL ends at 0/50"):
        fit_windows([Window(Lsn(0x10), Lsn(0x60))], Lsn(0x20), Lsn(0x20), Lsn(0x50))


@pytest.mark.parametrize(
    ("restart_lsn", "count"),
    [(None, 1), (0x1000, 1), (0xD01, 2), (0xD00, 3), (0x100, 5)],
    ids=["unknown", "at the first window", "nearly three behind", "three behind", "far behind"],
)
def test_one_call_is_for_no_more_wal_than_another_would_decode_again(restart_lsn: int | None, count: int) -> None:
    windows = [Window(Lsn(lo), Lsn(lo + 0x100)) for lo in range(0x1000, 0x1500, 0x100)]
    restart = None if restart_lsn is None else Lsn(restart_lsn)
    assert windows_of_one_call(windows, restart) == tuple(windows[:count])


def test_one_call_is_for_a_gibibyte_at_most() -> None:
    behind, size = 1 << 40, 300 << 20
    windows = [Window(Lsn(lo), Lsn(lo + size)) for lo in range(behind, behind + 9 * size, size)]
    assert len(windows_of_one_call(windows, Lsn(0))) == 3
    larger = [Window(Lsn(behind), Lsn(2 * behind)), Window(Lsn(2 * behind), Lsn(3 * behind))]
    assert len(windows_of_one_call(larger, Lsn(0))) == 1
