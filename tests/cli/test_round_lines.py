"""What `follow` tells a person of its rounds."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from cdc_assets.cli.follow import RoundLines
from spark_jobs.follow import FollowRound


def test_an_error_is_told_once() -> None:
    """A source that is away for a night would be two lines in each round."""
    idle = FollowRound(datetime(2026, 11, 22, tzinfo=UTC), 0.1, 0, 0, (), (), None, None, ())
    away = replace(idle, errors=("no answer",), hints=("postgres-cdc sync",), pipeline_errors=("no answer",))
    busy, over = replace(away, windows=1), replace(idle, windows=1)
    lines, quiet = RoundLines(False, Path("a.yaml")), RoundLines(True, None)
    said = [lines(each) or "" for each in (idle, away, away, busy, idle, idle, over)]
    start = "2026-11-22 00:00:00; "
    assert [text.removeprefix(start) for text in said] == [
        "",
        "0 windows; 0 changes; 0 tables written in 0.1 s; stopped: no answer\nhint: postgres-cdc sync --config a.yaml",
        "",
        "1 window; 0 changes; 0 tables written in 0.1 s",
        "0 windows; 0 changes; 0 tables written in 0.1 s",
        "",
        "1 window; 0 changes; 0 tables written in 0.1 s",
    ]
    assert [quiet(each) is not None for each in (idle, away, away, busy, over, over)] == [0, 1, 0, 0, 1, 0]
