"""Points of the source's history as people write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.replay.points import point

_NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-22T12:00:00Z",
        "2026-11-22t12:00:00z",
        "2026-11-22 12:00:00+00",
        "2026-11-22T13:00+01:00",
        "2026-11-22 08:00:00.000000-04",
    ],
)
def test_a_time(text: str) -> None:
    assert point(text) == _NOON


def test_fractions_of_a_second() -> None:
    assert point("2026-11-22 12:00:00.250000+00") == _NOON + timedelta(milliseconds=250)


def test_an_lsn() -> None:
    assert point("1/ABCDEF") == Lsn(0x100ABCDEF)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2026-11-22T12:00:00", "a time without its zone"),
        ("2026-11-22", "a time without its zone"),
        ("yesterday", "neither an LSN nor a time"),
        ("", "neither an LSN nor a time"),
        ("1/XYZ", "not an LSN"),
    ],
)
def test_anything_else_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        point(text)
    suggested = re.findall(r"as in ([^ ,)]+)| or ([^ ,)]+)\)", str(refused.value))
    assert suggested
    for form in suggested:
        point("".join(form))
