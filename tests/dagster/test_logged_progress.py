"""Progress in Dagster's log: few lines, each with what a person wants to know."""

from __future__ import annotations

from cdc_assets.logged_progress import logged_progress
from spark_jobs.progress import Step


def test_bytes_with_their_pace_and_the_time_left() -> None:
    clock = iter([0.0, 1.0, 3.0, 11.0, 21.0])
    lines: list[str] = []
    progress = logged_progress(lines.append, lambda: next(clock))
    for done in (100, 150, 300, 500):
        progress(Step("read", "public.item", done << 20, 500 << 20, "bytes"))
    assert lines == [
        "read public.item: 300.0 MiB of 500.0 MiB, 20.0 MiB/s, 0:00:10 left",
        "read public.item: 500.0 MiB of 500.0 MiB, 20.0 MiB/s",
    ]


def test_a_second_piece_of_work_has_a_pace_of_its_own() -> None:
    clock = iter([0.0, 1.0, 101.0, 200.0, 210.0])
    lines: list[str] = []
    progress = logged_progress(lines.append, lambda: next(clock))
    for done, total in ((10, 100), (100, 100), (10, 400), (200, 400)):
        progress(Step("read", "public.item", done << 20, total << 20, "bytes"))
    assert [line.partition(", ")[2] for line in lines] == ["921.6 KiB/s", "", "19.0 MiB/s, 0:00:11 left"]


def test_what_is_counted_otherwise() -> None:
    lines: list[str] = []
    progress = logged_progress(lines.append)
    progress(Step("capture", "", 1, 2, "windows"))
    progress(Step("capture", "", 2, 2, "windows"))
    progress(Step("snapshot", "public.item, 5 rows", 1_000, 1_000, "tables"))
    assert lines == ["capture: 2 of 2 windows", "snapshot public.item, 5 rows: 1,000 of 1,000 tables"]
