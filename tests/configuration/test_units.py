"""Sizes and durations: one grammar for the configuration file and for ``follow --every``."""

from __future__ import annotations

from datetime import timedelta

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.cli.follow import command as follow
from cdc_assets.configuration.units import DURATIONS, SIZES, duration_text, read_duration, read_size, size_text


def every(text: str) -> object:
    (option,) = (each for each in follow.params if each.name == "every")
    return option.process_value(click.Context(follow), text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("5", 5), ("0.5", 0.5), ("250ms", 0.25), (" 1.5 h ", 5400), ("1w", 604800), ("0s", 0)]
)
def test_durations(text: str, seconds: float) -> None:
    assert read_duration(text) == timedelta(seconds=seconds)
    assert every(text) == seconds


def test_every_takes_its_old_spelling_of_minutes() -> None:
    assert every("2min") == every("2 min") == every("2m") == 120.0


@pytest.mark.parametrize("text", ["", "s", "5sec", "-5s", "5 s s", "1e3s", "5in", "1d2h", "36501d", "9" * 40])
def test_what_is_no_duration_is_said(text: str) -> None:
    with pytest.raises(ValueError, match=r"^expected a duration \(units ms, s, m, h, d, w\)|at most 36500d$"):
        read_duration(text)
    with pytest.raises(click.BadParameter, match="is not a time: expected a duration"):
        every(text)


def test_sizes() -> None:
    assert [read_size(text) for text in (7, "7", "7B", "2 KiB", "1.5GiB")] == [7, 7, 7, 2048, 3 << 29]


@pytest.mark.parametrize("text", ["", "1kB", "1KB", "1G", "-1B", True, "KiB"])
def test_what_is_no_size_is_said(text: object) -> None:
    with pytest.raises(ValueError, match=r"^expected a size \(units B, KiB, MiB, GiB, TiB\)$"):
        read_size(text)


@given(st.integers(0, 2000), st.sampled_from(list(SIZES)), st.sampled_from(list(DURATIONS)))
def test_what_is_written_is_read_back(number: int, size: str, duration: str) -> None:
    assert read_size(size_text(number * SIZES[size])) == number * SIZES[size]
    assert read_duration(duration_text(number * DURATIONS[duration])) == number * DURATIONS[duration]
